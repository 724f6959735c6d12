#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hexlm {

/// Every element type that the safetensors format defines (its `dtype` strings are `to_string`'s).
enum class DType : uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f4,
  f6_e2m3,
  f6_e3m2,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

/// Size of one element in bits (4 and 6 for the sub-byte floats).
int bit_width(DType type);
/// The safetensors spelling: "F32", "BF16", "F8_E4M3", …
std::string_view to_string(DType type);
std::optional<DType> parse_dtype(std::string_view text);

}  // namespace hexlm
