#include "quantization/low_rank.hpp"

#include <utility>

#include "quantization/row_kernels.hpp"

namespace hexlm {
namespace {

/// [rows, columns] to [columns, rows].
std::vector<float> transpose(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  std::vector<float> out(matrix.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      out[static_cast<size_t>(c * rows + r)] = matrix[static_cast<size_t>(r * columns + c)];
    }
  }
  return out;
}

}  // namespace

std::vector<float> tensor_floats(const TensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  row_kernels().widen(tensor.bytes.data(), tensor.dtype, tensor.elements(), values.data());
  return values;
}

LowRankProduct low_rank_product(const AdapterModule& module, bool transposed) {
  LowRankProduct product;
  product.rank = module.rank();
  const int64_t outputs = module.up.shape[0];
  const int64_t inputs = module.down.shape[1];
  std::vector<float> up = tensor_floats(module.up);
  std::vector<float> down = tensor_floats(module.down);
  if (transposed || module.embedding) {
    product.rows = inputs;
    product.columns = outputs;
    product.left = transpose(down, product.rank, inputs);
    product.right = transpose(up, outputs, product.rank);
  } else {
    product.rows = outputs;
    product.columns = inputs;
    product.left = std::move(up);
    product.right = std::move(down);
  }
  return product;
}

void add_product_row(const LowRankProduct& product, double scale, int64_t row, std::span<double> sums) {
  for (int64_t k = 0; k < product.rank; ++k) {
    const double left = scale * product.left[static_cast<size_t>(row * product.rank + k)];
    const float* right = product.right.data() + k * product.columns;
    for (size_t column = 0; column < sums.size(); ++column) sums[column] += left * right[column];
  }
}

}  // namespace hexlm
