#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/budget.hpp"

namespace hexlm::jinja {

// Text as Python sees it: sequences of code points. Every text given here must be valid UTF-8, which the
// template's source and every value are.

/// The code point at byte `position`, which moves behind it.
char32_t next_code_point(std::string_view text, size_t& position);
void append_code_point(std::string& text, char32_t character);
size_t count_code_points(std::string_view text);
/// The byte at which code point `index` begins; the text's size if it has no more than `index`.
size_t byte_offset(std::string_view text, size_t index);

/// Python's str.isspace for one character; also what `-` in tags strips.
bool is_space(char32_t character);
/// A letter with case.
bool is_cased(char32_t character);
bool is_upper(char32_t character);
bool is_lower(char32_t character);
bool is_alphabetic(char32_t character);
bool is_decimal(char32_t character);
/// Whether Python's repr shows the character as itself.
bool is_printable(char32_t character);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// First character in title case, the others in lower case.
std::string to_capitalized(std::string_view text);
/// str.title: the first letter of each run of letters in title case.
std::string to_title(std::string_view text);
std::string swap_case(std::string_view text);
/// The case mapping of characters that become several; empty for all others.
std::string_view special_upper(char32_t character);
std::string_view special_title(char32_t character);

/// Without whitespace at the ends asked for.
std::string_view strip(std::string_view text, bool left, bool right);
/// Without characters of `characters` at the ends asked for.
std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right);
/// str.splitlines; `keep_ends` leaves the line breaks. Stops when `visit` returns false.
void visit_lines(std::string_view text, bool keep_ends, const std::function<bool(std::string_view)>& visit);

/// Finds a text in others in time linear in both, whatever they contain.
class Searcher {
 public:
  explicit Searcher(std::string_view needle);
  /// Whether `budget` allows the memory and work to prepare such a search.
  static bool affordable(Budget& budget, std::string_view needle) {
    return budget.room(needle.size() * sizeof(uint32_t)) && budget.spend_bytes(needle.size());
  }
  /// First occurrence at or after byte `from`, npos if there is none.
  size_t find(std::string_view text, size_t from = 0) const;
  size_t find_last(std::string_view text) const;
  /// Occurrences that do not overlap.
  size_t count(std::string_view text) const;

 private:
  std::string_view needle_;
  /// Of long needles: the length of the longest proper prefix that is also a suffix, for every prefix.
  std::vector<uint32_t> borders_;
};

}  // namespace hexlm::jinja
