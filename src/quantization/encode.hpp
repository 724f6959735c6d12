#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/dtype.hpp"
#include "formats/codec.hpp"
#include "quantization/method.hpp"
#include "quantization/quantizer.hpp"
#include "quantization/row_kernels.hpp"

namespace hexlm {

/// Why a weight cannot be stored in a codec, and where: `row` and `column` count from the block's first
/// element.
struct EncodeFault {
  enum class Kind : uint8_t { not_finite, scale_overflow, value_overflow };
  Kind kind = Kind::not_finite;
  int64_t row = 0;
  int64_t column = 0;
  float value = 0;  ///< of the element; for scale_overflow the group's element of greatest magnitude
};

/// "FILE: tensor NAME: element [3, 17] is nan, expected a finite value" as an error: `origin` is the file and
/// tensor, `element` the position in the whole tensor.
Error describe(const EncodeFault& fault, const Codec& codec, const std::string& origin,
               std::span<const int64_t> element);

/// Encodes `rows` rows of `columns` stored elements (f32, f16 or bf16) in any codec; `encoded` is overwritten
/// and its memory reused. A float codec of the source's own type copies the bytes. Methods that need
/// calibration are given weights without activations here, and search as mse does. Every kernel set gives the
/// same bytes.
std::optional<EncodeFault> encode_rows(const std::byte* source, DType dtype, int64_t rows, int64_t columns,
                                       const Codec& codec, Method method, EncodedRows& encoded,
                                       const RowKernels& kernels = row_kernels());

}  // namespace hexlm
