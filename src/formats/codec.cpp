#include "formats/codec.hpp"

#include <fmt/format.h>

#include "base/text.hpp"

namespace hexlm {
namespace {

constexpr int least_bits = 2;
constexpr int most_bits = 8;
constexpr int64_t least_group = 16;
constexpr int64_t most_group = 4096;

bool parse_integer_codec(std::string_view text, Codec& codec) {
  codec = Codec{Codec::Kind::integer, 0, 0, true};
  constexpr std::string_view wide_suffix = ":f32";
  if (text.ends_with(wide_suffix)) {
    codec.wide_scales = true;
    text.remove_suffix(wide_suffix.size());
  }
  if (text.size() < 2 || text[0] != 'w') return false;
  codec.bits = text[1] - '0';
  if (codec.bits < least_bits || codec.bits > most_bits) return false;
  text.remove_prefix(2);
  if (text.ends_with('a')) {
    codec.symmetric = false;
    text.remove_suffix(1);
  }
  if (text.empty()) return true;
  if (text[0] != 'g' || text.size() < 2 || text[1] == '0') return false;
  return parse_integer(text.substr(1), codec.group) && codec.group >= least_group &&
         codec.group <= most_group;
}

}  // namespace

int64_t Codec::groups(int64_t columns) const {
  if (is_float()) return 0;
  return group == 0 ? 1 : columns / group + static_cast<int64_t>(columns % group != 0);
}

int64_t Codec::row_bytes(int64_t columns) const {
  // In whole eights first, so that the product stays below columns * 4 (f32) and cannot overflow earlier.
  return columns / 8 * bits + (columns % 8 * bits + 7) / 8;
}

std::string to_string(const Codec& codec) {
  switch (codec.kind) {
    case Codec::Kind::f32:
      return "f32";
    case Codec::Kind::f16:
      return "f16";
    case Codec::Kind::bf16:
      return "bf16";
    case Codec::Kind::integer:
      break;
  }
  return fmt::format("w{}{}{}{}", codec.bits,
                     codec.group == 0 ? std::string() : fmt::format("g{}", codec.group),
                     codec.symmetric ? "" : "a", codec.wide_scales ? ":f32" : "");
}

Result<Codec> parse_codec(std::string_view text) {
  if (text == "f32") return Codec{Codec::Kind::f32, 32, 0, true};
  if (text == "f16") return Codec{Codec::Kind::f16, 16, 0, true};
  if (text == "bf16") return Codec{Codec::Kind::bf16, 16, 0, true};
  Codec codec;
  if (parse_integer_codec(text, codec)) return codec;
  return fail(ErrorCode::usage, fmt::format("'{}' is no codec", text),
              fmt::format("use f32, f16, bf16 or wB, wBgG, wBa, wBgGa with B bits ({} to {}) and groups of G "
                          "input channels ({} to {}): w8, w4g64, w4g128a",
                          least_bits, most_bits, least_group, most_group));
}

}  // namespace hexlm
