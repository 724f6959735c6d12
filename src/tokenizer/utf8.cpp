#include "tokenizer/utf8.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <simdjson.h>

namespace hexlm {
namespace {

enum class Form { valid, invalid, incomplete };

struct Sequence {
  Form form;
  size_t length;  // of the character, or of the maximal ill-formed subpart
};

/// The range of the second byte depends on the first (Unicode 15, table 3-7): it is what keeps out overlong
/// forms, surrogates and code points above U+10FFFF.
struct LeadByte {
  size_t length;  // 0: no character begins so
  unsigned char low, high;
};

LeadByte lead_byte(unsigned char b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2 || b > 0xF4) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {4, 0x80, 0xBF};
}

Sequence scan_sequence(std::string_view text) {
  const LeadByte lead = lead_byte(static_cast<unsigned char>(text[0]));
  if (lead.length == 0) return {Form::invalid, 1};
  unsigned char low = lead.low;
  unsigned char high = lead.high;
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Form::incomplete, i};
    const auto b = static_cast<unsigned char>(text[i]);
    if (b < low || b > high) return {Form::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Form::valid, lead.length};
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return std::nullopt;
  size_t at = 0;
  while (at < text.size()) {
    const Sequence sequence = scan_sequence(text.substr(at));
    if (sequence.form != Form::valid) return at;
    at += sequence.length;
  }
  return std::nullopt;
}

void append_lossy_utf8(std::string_view bytes, std::string& out) {
  if (simdjson::validate_utf8(bytes.data(), bytes.size())) {
    out.append(bytes);
    return;
  }
  for (size_t at = 0; at < bytes.size();) {
    const Sequence sequence = scan_sequence(bytes.substr(at));
    if (sequence.form == Form::valid) {
      out.append(bytes.substr(at, sequence.length));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    at += sequence.length;
  }
}

size_t complete_utf8_prefix(std::string_view bytes) {
  // Only a lead byte among the last three can begin an incomplete character.
  const size_t first = bytes.size() - std::min<size_t>(bytes.size(), 3);
  for (size_t at = first; at < bytes.size(); ++at) {
    if ((static_cast<unsigned char>(bytes[at]) & 0xC0) == 0x80) continue;
    if (scan_sequence(bytes.substr(at)).form == Form::incomplete) return at;
  }
  return bytes.size();
}

std::string as_one_line(std::string_view bytes) {
  constexpr size_t limit = 400;
  std::string text;
  append_lossy_utf8(bytes, text);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (out.size() >= limit) return out + " [...]";
    const Character character = read_character(text.data() + at);
    if (character.code_point < 0x20 || character.code_point == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(character.code_point));
    } else {
      out.append(text, at, character.length);
    }
    at += character.length;
  }
  return out;
}

}  // namespace hexlm
