#include "evaluation/scripts.hpp"

#include <algorithm>
#include <string>

#include "tokenizer/utf8.hpp"

namespace hexlm {
namespace {

struct ScriptRange {
  char32_t first;
  char32_t last;
};

bool within(std::span<const ScriptRange> ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [c](const ScriptRange& range) { return c >= range.first && c <= range.last; });
}

/// Unicode blocks: CJK ideographs with their extensions and compatibility forms, CJK punctuation, full-width
/// forms.
constexpr ScriptRange han_ranges[] = {{0x3000, 0x303F},  {0x3400, 0x4DBF}, {0x4E00, 0x9FFF},
                                      {0xF900, 0xFAFF},  {0xFF00, 0xFFEF}, {0x20000, 0x2FA1F},
                                      {0x30000, 0x323AF}};
constexpr ScriptRange latin_ranges[] = {{'A', 'Z'}, {'a', 'z'}, {0xC0, 0x24F}, {0x1E00, 0x1EFF}};

/// Calls `visit(offset, code point)` for each character; bytes that are none count as U+FFFD, one each.
template <class Visit>
void each_character(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const size_t valid = find_invalid_utf8(text.substr(at)).value_or(text.size() - at);
    const size_t end = at + valid;
    while (at < end) {
      const Character character = read_character(text.data() + at);
      visit(at, character.code_point);
      at += character.length;
    }
    if (at < text.size()) visit(at++, char32_t{0xFFFD});
  }
}

/// The script of each byte: that of its character, on its line.
std::vector<TextScript> byte_scripts(std::string_view text) {
  std::vector<TextScript> scripts(text.size(), TextScript::other);
  size_t previous = 0;
  TextScript script = TextScript::other;
  each_character(text, [&](size_t at, char32_t c) {
    std::fill(scripts.begin() + static_cast<std::ptrdiff_t>(previous),
              scripts.begin() + static_cast<std::ptrdiff_t>(at), script);
    previous = at;
    script = within(latin_ranges, c) ? TextScript::latin
             : within(han_ranges, c) ? TextScript::han
                                     : TextScript::other;
  });
  std::fill(scripts.begin() + static_cast<std::ptrdiff_t>(previous), scripts.end(), script);
  bool fenced = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string_view line = text.substr(begin, end - begin);
    const bool fence = line.starts_with("```");
    if (fenced || fence || looks_like_code(line))
      std::fill(scripts.begin() + static_cast<std::ptrdiff_t>(begin),
                scripts.begin() + static_cast<std::ptrdiff_t>(end), TextScript::code);
    fenced = fenced != fence;
    begin = end;
  }
  return scripts;
}

}  // namespace

std::string_view to_string(TextScript script) {
  switch (script) {
    case TextScript::latin:
      return "latin";
    case TextScript::han:
      return "han";
    case TextScript::code:
      return "code";
    case TextScript::other:
      break;
  }
  return "other";
}

bool looks_like_code(std::string_view line) {
  size_t marks = 0;
  size_t characters = 0;
  bool has_han = false;
  each_character(line, [&](size_t, char32_t c) {
    if (c <= ' ') return;
    ++characters;
    has_han = has_han || within(han_ranges, c);
    if (c < 0x80 && std::string_view("(){}[]<>=;_").find(static_cast<char>(c)) != std::string_view::npos)
      ++marks;
  });
  return !has_han && marks >= 2 && 12 * marks >= characters;
}

std::vector<TextScript> token_scripts(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string text;
  std::vector<size_t> starts;
  for (const int32_t id : ids) {
    starts.push_back(text.size());
    // A special token separates texts: what surrounds it is not one line.
    if (tokenizer.is_special(id)) {
      text += '\n';
    } else {
      text += tokenizer.token_bytes(id);
    }
  }
  starts.push_back(text.size());
  const std::vector<TextScript> bytes = byte_scripts(text);
  std::vector<TextScript> scripts;
  for (size_t i = 0; i < ids.size(); ++i) {
    TextScript script = TextScript::other;
    for (size_t at = starts[i]; at < starts[i + 1] && script == TextScript::other; ++at) script = bytes[at];
    scripts.push_back(tokenizer.is_special(ids[i]) ? TextScript::other : script);
  }
  return scripts;
}

}  // namespace hexlm
