#include "base/dtype.hpp"

#include <array>

namespace hexlm {
namespace {

struct Entry {
  DType type;
  std::string_view name;
  int bits;
};

/// In the order of the enumeration, so that a DType is its index.
constexpr std::array<Entry, 20> entries = {{
    {DType::boolean, "BOOL", 8},    {DType::u8, "U8", 8},           {DType::i8, "I8", 8},
    {DType::f8_e5m2, "F8_E5M2", 8}, {DType::f8_e4m3, "F8_E4M3", 8}, {DType::f8_e8m0, "F8_E8M0", 8},
    {DType::f4, "F4", 4},           {DType::f6_e2m3, "F6_E2M3", 6}, {DType::f6_e3m2, "F6_E3M2", 6},
    {DType::i16, "I16", 16},        {DType::u16, "U16", 16},        {DType::f16, "F16", 16},
    {DType::bf16, "BF16", 16},      {DType::i32, "I32", 32},        {DType::u32, "U32", 32},
    {DType::f32, "F32", 32},        {DType::c64, "C64", 64},        {DType::f64, "F64", 64},
    {DType::i64, "I64", 64},        {DType::u64, "U64", 64},
}};

constexpr bool in_order() {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (static_cast<size_t>(entries[i].type) != i) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

int bit_width(DType type) { return entries[static_cast<size_t>(type)].bits; }

std::string_view to_string(DType type) { return entries[static_cast<size_t>(type)].name; }

std::optional<DType> parse_dtype(std::string_view text) {
  for (const Entry& entry : entries) {
    if (entry.name == text) return entry.type;
  }
  return std::nullopt;
}

}  // namespace hexlm
