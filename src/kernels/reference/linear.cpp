#include <cmath>

#include "base/half.hpp"
#include "kernels/codes.hpp"
#include "kernels/reference/reference.hpp"

namespace hexlm::reference {

namespace {

float float_element(const MatrixView& matrix, int64_t index) {
  switch (matrix.codec.kind) {
    case Codec::Kind::f16:
      return half_to_float(load_u16(matrix.data, index));
    case Codec::Kind::bf16:
      return bfloat16_to_float(load_u16(matrix.data, index));
    default: {
      float value = 0;
      std::memcpy(&value, matrix.data + index * 4, sizeof value);
      return value;
    }
  }
}

float integer_element(const MatrixView& matrix, int64_t row, int64_t column) {
  const Codec& codec = matrix.codec;
  const int64_t groups = codec.groups(matrix.columns);
  const int64_t slot = row * groups + (codec.group > 0 ? column / codec.group : 0);
  const auto part = [&](const std::byte* scales) {
    return codec.wide_scales ? load_f32(scales, slot) : half_to_float(load_u16(scales, slot));
  };
  const float scale = part(matrix.scales);
  const auto code =
      static_cast<int>(code_at(matrix.data + row * codec.row_bytes(matrix.columns), codec.bits, column));
  if (codec.symmetric) return scale * static_cast<float>(code - symmetric_zero_code(codec.bits));
  return std::fma(scale, static_cast<float>(code), part(matrix.offsets));
}

float element(const MatrixView& matrix, int64_t row, int64_t column) {
  if (matrix.codec.is_float()) return float_element(matrix, row * matrix.columns + column);
  return integer_element(matrix, row, column);
}

}  // namespace

void dequantize_row(const MatrixView& matrix, int64_t row, float* out) {
  for (int64_t column = 0; column < matrix.columns; ++column) out[column] = element(matrix, row, column);
}

void float_linear(const FloatLinearArguments& arguments) {
  const MatrixView& weight = arguments.weight;
  for (int64_t row = arguments.row_begin; row < arguments.row_end; ++row) {
    dequantize_row(weight, row, arguments.scratch);
    for (int64_t token = 0; token < arguments.tokens; ++token) {
      const float* x = arguments.x + token * arguments.x_stride;
      double sum = arguments.bias != nullptr ? arguments.bias[row] : 0.0;
      for (int64_t column = 0; column < weight.columns; ++column) {
        sum += static_cast<double>(x[column]) * arguments.scratch[column];
      }
      arguments.y[token * arguments.y_stride + row] = static_cast<float>(sum);
    }
  }
}

}  // namespace hexlm::reference
