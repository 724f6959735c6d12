#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hexlm {

struct Character {
  char32_t code_point;
  uint32_t length;  // bytes
};

/// The character at `text`, which must be well-formed UTF-8 (no check is made).
inline Character read_character(const char* text) {
  const auto* b = reinterpret_cast<const unsigned char*>(text);
  if (b[0] < 0x80) return {b[0], 1};
  if (b[0] < 0xE0) return {char32_t(b[0] & 0x1F) << 6 | (b[1] & 0x3F), 2};
  if (b[0] < 0xF0) return {char32_t(b[0] & 0x0F) << 12 | char32_t(b[1] & 0x3F) << 6 | (b[2] & 0x3F), 3};
  return {
      char32_t(b[0] & 0x07) << 18 | char32_t(b[1] & 0x3F) << 12 | char32_t(b[2] & 0x3F) << 6 | (b[3] & 0x3F),
      4};
}

/// The start of the last character of well-formed, non-empty `text`.
inline size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

/// The offset of the first ill-formed byte sequence, or nothing when all of `text` is well-formed UTF-8.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// Appends `bytes` to `out`; each maximal ill-formed subpart (Unicode 15, section 3.9, table 3-8; what Rust's
/// `from_utf8_lossy` does) becomes one U+FFFD.
void append_lossy_utf8(std::string_view bytes, std::string& out);

/// How many leading bytes of `bytes` are complete characters or known to be ill-formed; what follows (at most
/// three bytes) could still become a character when more bytes arrive.
size_t complete_utf8_prefix(std::string_view bytes);

/// `text` (well-formed) for a message that quotes a file: control characters as \xNN, and an end after 400
/// bytes, which is more than any sensible token or regular expression takes.
std::string as_one_line(std::string_view bytes);

}  // namespace hexlm
