#include "formats/codec.hpp"

#include <fmt/format.h>

#include "base/text.hpp"

namespace hexlm {
namespace {

constexpr int least_bits = 2;
constexpr int most_bits = 8;
constexpr int64_t least_group = 16;
constexpr int64_t most_group = 4096;
constexpr int64_t least_scale_bits = 4;
constexpr int64_t most_scale_bits = 8;

/// Takes a trailing `mark` and number off the text; false when there is a mark without a number in range.
bool take_number(std::string_view& text, char mark, int64_t least, int64_t most, int64_t& value) {
  const size_t at = text.rfind(mark);
  if (at == std::string_view::npos) return true;
  const std::string_view digits = text.substr(at + 1);
  if (digits.empty() || digits[0] == '0' || !parse_integer(digits, value)) return false;
  text.remove_suffix(text.size() - at);
  return value >= least && value <= most;
}

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
  int64_t scale_bits = 0;
  if (!take_number(text, 's', least_scale_bits, most_scale_bits, scale_bits)) return false;
  codec.scale_bits = static_cast<int>(scale_bits);
  if (text.ends_with('a')) {
    codec.symmetric = false;
    text.remove_suffix(1);
  }
  if (!take_number(text, 'g', least_group, most_group, codec.group)) return false;
  // Integer scales of an offset as well, or of one group a row, would save nothing.
  const bool fits_two_levels = codec.symmetric && codec.group > 0 && !codec.wide_scales;
  return text.empty() && (!codec.is_two_level() || fits_two_levels);
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

int64_t Codec::scale_row_bytes(int64_t columns) const {
  // At most 8 bits for 16 columns: far from overflow.
  return (groups(columns) * scale_bits + 7) / 8;
}

Codec Codec::expanded() const {
  Codec codec = *this;
  codec.scale_bits = 0;
  return codec;
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
  return fmt::format(
      "w{}{}{}{}{}", codec.bits, codec.group == 0 ? std::string() : fmt::format("g{}", codec.group),
      codec.symmetric ? "" : "a", codec.is_two_level() ? fmt::format("s{}", codec.scale_bits) : std::string(),
      codec.wide_scales ? ":f32" : "");
}

Result<Codec> parse_codec(std::string_view text) {
  if (text == "f32") return Codec{Codec::Kind::f32, 32, 0, true};
  if (text == "f16") return Codec{Codec::Kind::f16, 16, 0, true};
  if (text == "bf16") return Codec{Codec::Kind::bf16, 16, 0, true};
  Codec codec;
  if (parse_integer_codec(text, codec)) return codec;
  return fail(ErrorCode::usage, fmt::format("'{}' is no codec", text),
              fmt::format("use f32, f16, bf16 or wB, wBgG, wBa, wBgGa with B bits ({} to {}) and groups of G "
                          "input channels ({} to {}), or wBgGsN with group scales of N bits ({} to {}): w8, "
                          "w4g64, w4g128a, w4g32s6",
                          least_bits, most_bits, least_group, most_group, least_scale_bits, most_scale_bits));
}

}  // namespace hexlm
