// Included by one source per instruction set, with HEXLM_DENSE_SET naming it. Eigen's namespace is renamed so
// that the linker cannot merge functions compiled for different sets.
#define HEXLM_DENSE_JOIN_(a, b) a##b
#define HEXLM_DENSE_JOIN(a, b) HEXLM_DENSE_JOIN_(a, b)
#define Eigen HEXLM_DENSE_JOIN(Eigen_, HEXLM_DENSE_SET)

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "quantization/dense.hpp"

namespace hexlm {
namespace {

using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using DoubleMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
using FloatView = Eigen::Map<FloatMatrix, 0, Stride>;
using ConstFloatView = Eigen::Map<const FloatMatrix, 0, Stride>;
using DoubleView = Eigen::Map<DoubleMatrix>;

void accumulate_products(const float* x, int64_t x_columns, const float* y, int64_t y_columns, int64_t tokens,
                         int64_t row_begin, int64_t row_end, int64_t column_begin, double* out) {
  const int64_t rows = row_end - row_begin;
  const int64_t width = y_columns - column_begin;
  const ConstFloatView left(x + row_begin, tokens, rows, Stride(x_columns));
  const ConstFloatView right(y + column_begin, tokens, width, Stride(y_columns));
  FloatMatrix products(rows, width);
  products.noalias() = left.transpose() * right;
  DoubleView sums(out, x_columns, y_columns);
  sums.block(row_begin, column_begin, rows, width) += products.cast<double>();
}

void multiply_add(const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c,
                  int64_t c_stride, int64_t m, int64_t k, int64_t n) {
  const ConstFloatView left(a, m, k, Stride(a_stride));
  const ConstFloatView right(b, k, n, Stride(b_stride));
  FloatView(c, m, n, Stride(c_stride)).noalias() += left * right;
}

bool factor_inverse(double* h, int64_t n, float* u) {
  // With rows and columns reversed, J h J = L Lᵀ; R = J L J is upper triangular and h = R Rᵀ, so U = R⁻¹.
  DoubleView lower(h, n, n);
  for (int64_t i = 0, j = n * n - 1; i < j; ++i, --j) {
    const double first = h[i];
    h[i] = h[j];
    h[j] = first;
  }
  const Eigen::LLT<Eigen::Ref<DoubleMatrix>> factor(lower);
  if (factor.info() != Eigen::Success) return false;
  DoubleMatrix inverse = DoubleMatrix::Identity(n, n);
  lower.triangularView<Eigen::Lower>().solveInPlace(inverse);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      u[i * n + j] = j < i ? 0.0F : static_cast<float>(inverse(n - 1 - i, n - 1 - j));
    }
  }
  return true;
}

bool add_correction(double* a, double* d, const double* r, int64_t n, float* w, int64_t rows) {
  DoubleView matrix(a, n, n);
  const Eigen::LLT<Eigen::Ref<DoubleMatrix>> factor(matrix);
  if (factor.info() != Eigen::Success) return false;
  // a⁻¹ = L⁻ᵀ L⁻¹ applied from the right, a panel of rows at a time.
  constexpr int64_t panel = 64;
  const DoubleView drift(d, n, n);
  for (int64_t first = 0; first < rows; first += panel) {
    const int64_t count = rows - first < panel ? rows - first : panel;
    FloatView weights(w + first * n, count, n, Stride(n));
    DoubleMatrix product = weights.cast<double>() * drift;
    if (r != nullptr) product += Eigen::Map<const DoubleMatrix>(r + first * n, count, n);
    matrix.triangularView<Eigen::Lower>().transpose().solveInPlace<Eigen::OnTheRight>(product);
    matrix.triangularView<Eigen::Lower>().solveInPlace<Eigen::OnTheRight>(product);
    weights += product.cast<float>();
  }
  return true;
}

}  // namespace

extern const DenseKernels HEXLM_DENSE_JOIN(dense_kernels_, HEXLM_DENSE_SET);
const DenseKernels HEXLM_DENSE_JOIN(dense_kernels_, HEXLM_DENSE_SET) = {
    "dense", accumulate_products, multiply_add, factor_inverse, add_correction};

}  // namespace hexlm
