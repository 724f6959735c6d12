#include <array>
#include <fmt/format.h>
#include <string>

#include "tokenizer/splitter.hpp"
#include "tokenizer/utf8.hpp"

namespace hexlm {
namespace {

// Property White_Space, which is Oniguruma's \s. PCRE2's \s has U+180E too (a format character since
// Unicode 6.3).
constexpr std::string_view white_space_members = R"(\x{9}-\x{d}\x{85}\p{Z})";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Copies a pattern construct by construct: what is not known to mean the same in both dialects is refused.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern), pattern_(pattern) {}

  Result<std::string> translate() {
    while (!rest_.empty()) {
      switch (rest_[0]) {
        case '\\':
          HEXLM_TRY(escape(false));
          break;
        case '[':
          HEXLM_TRY(character_class());
          break;
        case '(':
          HEXLM_TRY(group());
          break;
        case '{':
          HEXLM_TRY(interval());
          break;
        case '^':
        case '$':
          return refuse(rest_.substr(0, 1));
        default:
          copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> refuse(std::string_view construct) const {
    return fail(
        ErrorCode::unsupported,
        fmt::format("the pre-tokenizer's regular expression \"{}\" uses \"{}\", which is not supported",
                    pattern_, construct));
  }
  void copy(size_t count) {
    out_.append(rest_.substr(0, count));
    rest_.remove_prefix(count);
  }
  bool begins(std::string_view text) const { return rest_.substr(0, text.size()) == text; }

  Status escape(bool in_class) {
    if (rest_.size() < 2) return refuse("\\");
    const char kind = rest_[1];
    switch (kind) {
      case 's':
        out_.append(in_class ? std::string(white_space_members) : fmt::format("[{}]", white_space_members));
        rest_.remove_prefix(2);
        return {};
      case 'S':
        out_.append(in_class ? R"(\S\x{180e})" : fmt::format("[^{}]", white_space_members));
        rest_.remove_prefix(2);
        return {};
      case 'p':
      case 'P':
        return property();
      case 'u':
        return unicode_escape();
      case 'x':
        return hex_escape();
      default:
        break;
    }
    const bool same_letter = std::string_view("dDrntf").find(kind) != std::string_view::npos;
    const bool punctuation = static_cast<unsigned char>(kind) < 0x80 && !is_letter(kind) && !is_digit(kind);
    if (!same_letter && !punctuation) return refuse(rest_.substr(0, 2));
    copy(2);
    return {};
  }

  /// \p{L}, \p{^L}, \p{Han}: a general category of one or two letters, or a script. A bare script name would
  /// include script extensions in PCRE2.
  Status property() {
    const size_t close = rest_.find('}');
    if (rest_.size() < 3 || rest_[2] != '{' || close == std::string_view::npos)
      return refuse(rest_.substr(0, 3));
    std::string_view name = rest_.substr(3, close - 3);
    const bool negated = !name.empty() && name[0] == '^';
    if (negated) name.remove_prefix(1);
    for (const char c : name) {
      if (!is_letter(c) && c != '_') return refuse(rest_.substr(0, close + 1));
    }
    if (name.empty()) return refuse(rest_.substr(0, close + 1));
    out_ += fmt::format("\\{}{{{}{}{}}}", rest_[1], negated ? "^" : "", name.size() > 2 ? "sc:" : "", name);
    rest_.remove_prefix(close + 1);
    return {};
  }

  Status unicode_escape() {
    const std::string_view digits = rest_.substr(2, 4);
    if (digits.size() != 4) return refuse(rest_);
    for (const char c : digits) {
      if (!is_hex_digit(c)) return refuse(rest_.substr(0, 6));
    }
    out_ += fmt::format("\\x{{{}}}", digits);
    rest_.remove_prefix(6);
    return {};
  }

  Status hex_escape() {
    size_t end = 2;
    if (rest_.size() > 2 && rest_[2] == '{') {
      const size_t close = rest_.find('}');
      if (close == std::string_view::npos) return refuse(rest_.substr(0, 3));
      end = close + 1;
    } else {
      while (end < 4 && end < rest_.size() && is_hex_digit(rest_[end])) ++end;
      // Above 0x7F the two-digit form is a byte in Oniguruma, a code point in PCRE2.
      if (end < 4 || rest_[2] >= '8') return refuse(rest_.substr(0, end));
    }
    copy(end);
    return {};
  }

  /// Nested classes and && are set operations in Oniguruma, characters in PCRE2.
  Status character_class() {
    copy(1);
    if (begins("^")) copy(1);
    if (begins("]")) return refuse("[]");
    while (!begins("]")) {
      if (rest_.empty()) return refuse("[");
      if (rest_[0] == '[' || begins("&&")) return refuse(rest_.substr(0, 2));
      if (rest_[0] == '\\') {
        HEXLM_TRY(escape(true));
      } else {
        copy(1);
      }
    }
    copy(1);
    return {};
  }

  /// An option group that is not closed at once, (?i), ends at different places in the two.
  Status group() {
    if (begins("(*")) return refuse("(*");
    if (!begins("(?")) {
      copy(1);
      return {};
    }
    constexpr std::array<std::string_view, 7> known = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    for (const std::string_view opening : known) {
      if (begins(opening)) {
        copy(opening.size());
        return {};
      }
    }
    return refuse(rest_.substr(0, 4));
  }

  /// {n}, {n,} and {n,m}. A following "+" or "?" means different things.
  Status interval() {
    size_t end = 1;
    while (end < rest_.size() && is_digit(rest_[end])) ++end;
    const bool has_minimum = end > 1;
    if (end < rest_.size() && rest_[end] == ',') ++end;
    while (end < rest_.size() && is_digit(rest_[end])) ++end;
    if (!has_minimum || end >= rest_.size() || rest_[end] != '}') return refuse(rest_.substr(0, end + 1));
    ++end;
    if (end < rest_.size() && (rest_[end] == '+' || rest_[end] == '?'))
      return refuse(rest_.substr(0, end + 1));
    copy(end);
    return {};
  }

  std::string_view rest_;
  std::string_view pattern_;
  std::string out_;
};

}  // namespace

Result<std::string> translate_regex(std::string_view pattern) {
  if (find_invalid_utf8(pattern)) {
    return fail(ErrorCode::bad_input, "the pre-tokenizer's regular expression is not valid UTF-8");
  }
  return Translator(pattern).translate();
}

}  // namespace hexlm
