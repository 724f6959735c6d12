#include <array>
#include <fmt/format.h>

#include "tokenizer/code_points.hpp"
#include "tokenizer/splitter.hpp"
#include "tokenizer/utf8.hpp"

namespace hexlm {
namespace {

std::string pattern_of(std::string_view word_class, std::string_view word_members, std::string_view digits) {
  return fmt::format(
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?{}+|{}| ?[^\s{}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      word_class, digits, word_members);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

/// The bytes of a contraction at `text`, which begins with an apostrophe; 0 when there is none.
/// Case-insensitive matching makes U+017F (long s) an s.
size_t contraction_length(std::string_view text) {
  if (text.size() < 2) return 0;
  const char first = lower(text[1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (text.size() < 3) return 0;
  if (text.substr(1, 2) == "\xC5\xBF") return 3;
  const char second = lower(text[2]);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) {
    return 3;
  }
  return 0;
}

/// A position in the text and the character there.
class Cursor {
 public:
  Cursor(std::string_view text, size_t at, const CodePointTable& table)
      : text_(text), at_(at), table_(table) {
    read();
  }
  bool at_end() const { return at_ == text_.size(); }
  size_t at() const { return at_; }
  /// The properties of the character, 0 at the end.
  unsigned bits() const { return bits_; }
  void advance() {
    at_ += length_;
    read();
  }
  /// Advances over characters that have any of the properties of `mask`.
  void skip_any(unsigned mask) {
    while ((bits_ & mask) != 0) advance();
  }
  /// Advances over characters that have none of the properties of `mask`.
  void skip_none(unsigned mask) {
    while (!at_end() && (bits_ & mask) == 0) advance();
  }

 private:
  void read() {
    if (at_end()) {
      bits_ = 0;
      return;
    }
    const Character character = read_character(text_.data() + at_);
    length_ = character.length;
    bits_ = table_[character.code_point];
  }

  std::string_view text_;
  size_t at_;
  const CodePointTable& table_;
  uint32_t length_ = 0;
  unsigned bits_ = 0;
};

/// \s*[\r\n]+ | \s+(?!\S) | \s+ at white space.
size_t white_space_end(Cursor cursor) {
  const size_t begin = cursor.at();
  size_t last = begin;  // where the last character of the run starts
  size_t newline_end = begin;
  while ((cursor.bits() & code_point::white_space) != 0) {
    last = cursor.at();
    const bool newline = (cursor.bits() & code_point::newline) != 0;
    cursor.advance();
    if (newline) newline_end = cursor.at();
  }
  if (newline_end > begin) return newline_end;
  // The last white space before a word stays for the next piece, which may begin with one.
  return cursor.at_end() || last == begin ? cursor.at() : last;
}

}  // namespace

std::optional<WordSplitter> WordSplitter::for_pattern(std::string_view pattern) {
  for (const int max_digits : {1, 3}) {
    const std::string_view digits = max_digits == 1 ? R"(\p{N})" : R"(\p{N}{1,3})";
    if (pattern == pattern_of(R"(\p{L})", R"(\p{L})", digits)) return WordSplitter(false, max_digits);
    if (pattern == pattern_of(R"([\p{L}\p{M}])", R"(\p{L}\p{M})", digits)) {
      return WordSplitter(true, max_digits);
    }
  }
  return std::nullopt;
}

WordSplitter::WordSplitter(bool marks_in_words, int max_digits)
    : word_mask_(marks_in_words ? code_point::letter | code_point::mark : code_point::letter),
      max_digits_(max_digits) {}

size_t WordSplitter::piece_end(std::string_view text, size_t begin) const {
  const unsigned not_symbol = word_mask_ | code_point::number | code_point::white_space;
  Cursor cursor(text, begin, code_points());
  const unsigned first = cursor.bits();
  if ((first & word_mask_) != 0) {
    cursor.skip_any(word_mask_);
    return cursor.at();
  }
  if ((first & code_point::number) != 0) {
    for (int i = 0; i < max_digits_ && (cursor.bits() & code_point::number) != 0; ++i) cursor.advance();
    return cursor.at();
  }
  if (text[begin] == '\'') {
    if (const size_t length = contraction_length(text.substr(begin)); length != 0) return begin + length;
  }
  Cursor next = cursor;
  next.advance();
  if ((first & code_point::newline) == 0 && (next.bits() & word_mask_) != 0) {
    next.skip_any(word_mask_);
    return next.at();
  }
  const bool symbol = (first & not_symbol) == 0;
  if (symbol || (text[begin] == ' ' && !next.at_end() && (next.bits() & not_symbol) == 0)) {
    next.skip_none(not_symbol);
    next.skip_any(code_point::newline);
    return next.at();
  }
  return white_space_end(cursor);
}

}  // namespace hexlm
