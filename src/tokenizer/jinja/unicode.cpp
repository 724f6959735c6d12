#include "tokenizer/jinja/unicode.hpp"

#include <algorithm>
#include <string>
#include <utf8proc.h>

namespace hexlm::jinja {
namespace {

// std::string_view::find compares at every candidate position; bounded needles keep that linear.
constexpr size_t short_needle = 32;

template <class Map>
std::string map_text(std::string_view text, Map map) {
  std::string result;
  result.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const char32_t character = next_code_point(text, position);
    map(character, position, result);
  }
  return result;
}

void append_upper(std::string& result, char32_t character) {
  if (const auto special = special_upper(character); !special.empty()) {
    result += special;
  } else {
    append_code_point(result,
                      static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(character))));
  }
}

void append_title(std::string& result, char32_t character) {
  if (const auto special = special_title(character); !special.empty()) {
    result += special;
  } else {
    append_code_point(result,
                      static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(character))));
  }
}

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

/// Unicode's Case_Ignorable: marks, modifiers and what joins the letters of a word.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  return std::u32string_view(
             U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A")
             .find(c) != std::u32string_view::npos;
}

/// Whether a capital sigma ending at byte `after` is the last letter of a word, where it becomes ς.
bool ends_word(std::string_view text, size_t after) {
  constexpr size_t sigma_bytes = 2;
  size_t before = after - sigma_bytes;
  bool follows_letter = false;
  while (before > 0 && !follows_letter) {
    --before;
    while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
    size_t next = before;
    const char32_t c = next_code_point(text, next);
    follows_letter = is_cased(c);
    if (!follows_letter && !is_case_ignorable(c)) return false;
  }
  while (follows_letter && after < text.size()) {
    const char32_t c = next_code_point(text, after);
    if (is_cased(c)) return false;
    if (!is_case_ignorable(c)) break;
  }
  return follows_letter;
}

void append_lower(std::string& result, char32_t character, std::string_view text, size_t after) {
  constexpr char32_t capital_sigma = 0x3A3;
  constexpr char32_t capital_i_with_dot = 0x130;
  if (character == capital_i_with_dot) {
    result += "i\xCC\x87";
  } else if (character == capital_sigma) {
    append_code_point(result, ends_word(text, after) ? 0x3C2 : 0x3C3);
  } else {
    append_code_point(result,
                      static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
  }
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& position) {
  const auto byte = [&](size_t index) -> char32_t {
    return index < text.size() ? static_cast<unsigned char>(text[index]) : 0;
  };
  const char32_t first = byte(position);
  if (first < 0x80) {
    position += 1;
    return first;
  }
  if (first < 0xE0) {
    position += 2;
    return ((first & 0x1F) << 6) | (byte(position - 1) & 0x3F);
  }
  if (first < 0xF0) {
    position += 3;
    return ((first & 0x0F) << 12) | ((byte(position - 2) & 0x3F) << 6) | (byte(position - 1) & 0x3F);
  }
  position += 4;
  return ((first & 0x07) << 18) | ((byte(position - 3) & 0x3F) << 12) | ((byte(position - 2) & 0x3F) << 6) |
         (byte(position - 1) & 0x3F);
}

void append_code_point(std::string& text, char32_t character) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t byte_offset(std::string_view text, size_t index) {
  for (size_t position = 0; position < text.size(); ++position) {
    if ((static_cast<unsigned char>(text[position]) & 0xC0) == 0x80) continue;
    if (index == 0) return position;
    --index;
  }
  return text.size();
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_alphabetic(char32_t c) {
  const auto kind = category(c);
  return is_cased(c) || kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

std::string to_upper(std::string_view text) {
  return map_text(text, [](char32_t c, size_t, std::string& result) { append_upper(result, c); });
}

std::string to_lower(std::string_view text) {
  return map_text(
      text, [&](char32_t c, size_t after, std::string& result) { append_lower(result, c, text, after); });
}

std::string to_capitalized(std::string_view text) {
  bool first = true;
  return map_text(text, [&](char32_t c, size_t after, std::string& result) {
    first ? append_title(result, c) : append_lower(result, c, text, after);
    first = false;
  });
}

std::string to_title(std::string_view text) {
  bool inside = false;
  return map_text(text, [&](char32_t c, size_t after, std::string& result) {
    inside ? append_lower(result, c, text, after) : append_title(result, c);
    inside = is_cased(c);
  });
}

std::string swap_case(std::string_view text) {
  return map_text(text, [&](char32_t c, size_t after, std::string& result) {
    if (is_upper(c)) {
      append_lower(result, c, text, after);
    } else if (is_lower(c)) {
      append_upper(result, c);
    } else {
      append_code_point(result, c);
    }
  });
}

namespace {

template <class Matches>
std::string_view strip_matching(std::string_view text, bool left, bool right, Matches matches) {
  size_t begin = 0;
  while (left && begin < text.size()) {
    size_t next = begin;
    if (!matches(next_code_point(text, next))) break;
    begin = next;
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    size_t next = start;
    if (!matches(next_code_point(text, next))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::string_view strip(std::string_view text, bool left, bool right) {
  return strip_matching(text, left, right, is_space);
}

std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right) {
  std::vector<char32_t> set;
  for (size_t position = 0; position < characters.size();)
    set.push_back(next_code_point(characters, position));
  std::sort(set.begin(), set.end());
  return strip_matching(text, left, right,
                        [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

void visit_lines(std::string_view text, bool keep_ends, const std::function<bool(std::string_view)>& visit) {
  size_t begin = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t end = position;
    if (!is_line_break(next_code_point(text, position))) continue;
    if (text[end] == '\r' && position < text.size() && text[position] == '\n') ++position;
    if (!visit(text.substr(begin, (keep_ends ? position : end) - begin))) return;
    begin = position;
  }
  if (begin < text.size()) visit(text.substr(begin));
}

Searcher::Searcher(std::string_view needle) : needle_(needle) {
  if (needle.size() <= short_needle) return;
  borders_.resize(needle.size(), 0);
  uint32_t border = 0;
  for (size_t index = 1; index < needle.size(); ++index) {
    while (border > 0 && needle[index] != needle[border]) border = borders_[border - 1];
    if (needle[index] == needle[border]) ++border;
    borders_[index] = border;
  }
}

size_t Searcher::find(std::string_view text, size_t from) const {
  if (borders_.empty()) return text.find(needle_, from);
  size_t matched = 0;
  for (size_t index = from; index < text.size(); ++index) {
    while (matched > 0 && text[index] != needle_[matched]) matched = borders_[matched - 1];
    if (text[index] == needle_[matched]) ++matched;
    if (matched == needle_.size()) return index + 1 - matched;
  }
  return std::string_view::npos;
}

size_t Searcher::find_last(std::string_view text) const {
  if (borders_.empty()) return text.rfind(needle_);
  size_t last = std::string_view::npos;
  size_t matched = 0;
  for (size_t index = 0; index < text.size(); ++index) {
    while (matched > 0 && (matched == needle_.size() || text[index] != needle_[matched])) {
      matched = borders_[matched - 1];
    }
    if (text[index] == needle_[matched]) ++matched;
    if (matched == needle_.size()) last = index + 1 - matched;
  }
  return last;
}

size_t Searcher::count(std::string_view text) const {
  size_t total = 0;
  for (size_t at = find(text); at != std::string_view::npos; at = find(text, at + needle_.size())) ++total;
  return total;
}

}  // namespace hexlm::jinja
