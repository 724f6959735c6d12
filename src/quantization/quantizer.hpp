#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/codec.hpp"

namespace hexlm {

/// Rows of one weight in stored form, ready to be written or viewed.
struct EncodedRows {
  std::vector<std::byte> data;
  std::vector<std::byte> group_scales;  ///< two-level codecs: [rows, scale_row_bytes]
  std::vector<uint16_t> scales;         ///< [rows, groups]; two-level: [rows]
  std::vector<uint16_t> offsets;
  double squared_error = 0;  ///< Σ (w − ŵ)²
  double squared_norm = 0;   ///< Σ w²
};

/// Round to nearest (spec D.1). Symmetric: Δ = max|w| / (2^(bits−1) − 1), codes −(2^(bits−1)−1) …
/// 2^(bits−1)−1 around the zero code; asymmetric: Δ = (max − min)/(2^bits − 1) with min ≤ 0 ≤ max, offset =
/// min. Scales are rounded to fp16 first and codes chosen with the rounded scale; an all-zero group gets Δ =
/// 0 and the zero code. `rows` is row-major [row count, columns]. Errors: bad_input naming row, column and
/// value for NaN or infinity, and for a scale beyond fp16.
Result<EncodedRows> encode_rtn(std::span<const float> rows, int64_t columns, const Codec& codec);

/// Row-major floats of the stored rows (the exact values every backend must multiply with).
std::vector<float> decode_rows(const WeightView& weight, int64_t row_begin, int64_t row_end);

/// Packs unsigned codes of one row, least significant bit first, and back.
void pack_codes(std::span<const uint8_t> codes, int bits, std::byte* out);
void unpack_codes(const std::byte* packed, int bits, std::span<uint8_t> codes);

}  // namespace hexlm
