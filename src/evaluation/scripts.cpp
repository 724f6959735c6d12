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
std::vector<Script> byte_scripts(std::string_view text) {
  std::vector<Script> scripts(text.size(), Script::other);
  size_t previous = 0;
  Script script = Script::other;
  each_character(text, [&](size_t at, char32_t c) {
    std::fill(scripts.begin() + static_cast<std::ptrdiff_t>(previous),
              scripts.begin() + static_cast<std::ptrdiff_t>(at), script);
    previous = at;
    script = within(latin_ranges, c) ? Script::latin : within(han_ranges, c) ? Script::han : Script::other;
  });
  std::fill(scripts.begin() + static_cast<std::ptrdiff_t>(previous), scripts.end(), script);
  bool fenced = false;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string_view line = text.substr(begin, end - begin);
    const bool fence = line.starts_with("```");
    if (fenced || fence || looks_like_code(line))
      std::fill(scripts.begin() + static_cast<std::ptrdiff_t>(begin),
                scripts.begin() + static_cast<std::ptrdiff_t>(end), Script::code);
    fenced = fenced != fence;
    begin = end;
  }
  return scripts;
}

}  // namespace

std::string_view to_string(Script script) {
  switch (script) {
    case Script::latin:
      return "latin";
    case Script::han:
      return "han";
    case Script::code:
      return "code";
    case Script::other:
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

std::vector<Script> token_scripts(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
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
  const std::vector<Script> bytes = byte_scripts(text);
  std::vector<Script> scripts;
  for (size_t i = 0; i < ids.size(); ++i) {
    Script script = Script::other;
    for (size_t at = starts[i]; at < starts[i + 1] && script == Script::other; ++at) script = bytes[at];
    scripts.push_back(tokenizer.is_special(ids[i]) ? Script::other : script);
  }
  return scripts;
}

}  // namespace hexlm
