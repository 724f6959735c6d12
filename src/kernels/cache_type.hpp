#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hexlm {

/// How keys and values are kept. int8: of each token and key/value head as int8 with one float scale, as
/// KernelSet::store_int8 makes them.
enum class CacheType : uint8_t { f32, f16, int8 };
inline constexpr std::array<CacheType, 3> cache_types = {CacheType::f32, CacheType::f16, CacheType::int8};

constexpr std::string_view to_string(CacheType type) {
  switch (type) {
    case CacheType::f32:
      return "f32";
    case CacheType::f16:
      return "f16";
    case CacheType::int8:
      return "int8";
  }
  return "";
}

constexpr std::optional<CacheType> parse_cache_type(std::string_view text) {
  for (const CacheType type : cache_types) {
    if (text == to_string(type)) return type;
  }
  return std::nullopt;
}

/// Bytes of one number, scales apart.
constexpr int64_t element_bytes(CacheType type) {
  if (type == CacheType::int8) return 1;
  return type == CacheType::f16 ? 2 : 4;
}

/// Bytes of one token's key, or value, of one head; `head_dim` as a double for forecasts that never overflow.
template <class Number>
constexpr Number head_bytes(CacheType type, Number head_dim) {
  return head_dim * static_cast<Number>(element_bytes(type)) +
         (type == CacheType::int8 ? static_cast<Number>(sizeof(float)) : Number{0});
}

}  // namespace hexlm
