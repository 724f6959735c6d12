#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.hpp"
#include "formats/codec.hpp"

/// Reading stored weights: bit-packed codes and unaligned fp16. Internal to the kernel layer; everything is
/// static so that a translation unit compiled for a newer instruction set never lends its copy to another
/// one.
namespace hexlm {

/// Code of `column`; bits lie least significant first along the row (formats/codec.hpp).
[[maybe_unused]] static inline uint32_t code_at(const std::byte* row, int bits, int64_t column) {
  const int64_t bit = column * bits;
  const int64_t byte = bit >> 3;
  const int shift = static_cast<int>(bit & 7);
  uint32_t value = std::to_integer<uint32_t>(row[byte]);
  if (shift + bits > 8) value |= std::to_integer<uint32_t>(row[byte + 1]) << 8;
  return (value >> shift) & ((1U << bits) - 1U);
}

[[maybe_unused]] static inline uint16_t load_u16(const std::byte* data, int64_t index) {
  uint16_t value = 0;
  std::memcpy(&value, data + index * 2, sizeof value);
  return value;
}

/// An fp32 element of any alignment.
[[maybe_unused]] static inline float load_f32(const std::byte* data, int64_t index) {
  float value = 0;
  std::memcpy(&value, data + index * 4, sizeof value);
  return value;
}

/// A scale or offset as packed matrices hold it. Rounding fp32 ones to fp16 moves a weight by less than its
/// int8 activations do; importers see to it that none is beyond fp16.
[[maybe_unused]] static inline uint16_t packed_scale(const Codec& codec, const std::byte* part,
                                                     int64_t slot) {
  return codec.wide_scales ? float_to_half(load_f32(part, slot)) : load_u16(part, slot);
}

/// The code that stands for weight 0 in a symmetric codec.
[[maybe_unused]] static inline int symmetric_zero_code(int bits) { return 1 << (bits - 1); }

}  // namespace hexlm
