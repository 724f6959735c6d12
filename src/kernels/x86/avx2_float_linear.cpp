#include "kernels/generic/float_linear.hpp"
#include "kernels/x86/avx2_vector.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx2 {

void dequantize_row(const MatrixView& matrix, int64_t row, float* out) {
  Dequantizer<Vector>(matrix).run(row, 0, matrix.columns, out);
}

void float_linear(const FloatLinearArguments& arguments) { FloatLinear<Vector>(arguments).run(); }

}  // namespace hexlm::avx2
