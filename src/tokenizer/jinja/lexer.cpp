#include "tokenizer/jinja/lexer.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "tokenizer/jinja/literal.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (position_ < source_.size()) HEXLM_TRY(lex_text());
    add(Token::Kind::end, "", source_.size());
    return std::move(tokens_);
  }

  size_t position() const { return position_; }

 private:
  bool at(std::string_view word, size_t position) const {
    return source_.substr(std::min(position, source_.size())).starts_with(word);
  }
  bool at(std::string_view word) const { return at(word, position_); }

  void add(Token::Kind kind, std::string text, size_t offset) {
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    token.offset = static_cast<uint32_t>(offset);
    tokens_.push_back(std::move(token));
  }

  void add_text(std::string_view text, size_t offset) {
    if (!text.empty()) add(Token::Kind::data, std::string(text), offset);
  }

  size_t skip_spaces(size_t position) const {
    while (position < source_.size()) {
      size_t next = position;
      if (!is_space(next_code_point(source_, next))) break;
      position = next;
    }
    return position;
  }

  /// The text before a tag with `sign` ('-', '+' or none), without what the tag takes away.
  std::string_view trim_before_tag(std::string_view text, char sign, bool variable) const {
    if (sign == '-') return strip(text, false, true);
    if (sign == '+' || variable) return text;
    const size_t line = text.rfind('\n') + 1;
    if (line == 0 && !line_starting_) return text;
    return strip(text.substr(line), true, false).empty() ? text.substr(0, line) : text;
  }

  /// Moves behind `end` bytes and behind what the tag's last characters take away.
  void finish_tag(size_t end, char sign, bool trim_line_break) {
    position_ = end;
    if (sign == '-') {
      position_ = skip_spaces(position_);
    } else if (sign != '+' && trim_line_break && at("\n")) {
      ++position_;
    }
    line_starting_ = source_[position_ - 1] == '\n';
  }

  Status lex_text() {
    size_t tag = position_;
    do {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        add_text(source_.substr(position_), position_);
        position_ = source_.size();
        return {};
      }
      ++tag;
    } while (source_[tag] != '{' && source_[tag] != '%' && source_[tag] != '#');
    --tag;
    const char kind = source_[tag + 1];
    const char next = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = next == '-' || next == '+' ? next : '\0';
    add_text(trim_before_tag(source_.substr(position_, tag - position_), sign, kind == '{'), position_);
    line_starting_ = false;
    position_ = tag + (sign == '\0' ? 2 : 3);
    if (kind == '#') return lex_comment(tag);
    if (kind == '%') {
      if (const auto end = raw_tag_end("raw", tag)) return lex_raw(*end, tag);
      add(Token::Kind::block_begin, "", tag);
      return lex_tag(tag, "%}", Token::Kind::block_end);
    }
    add(Token::Kind::variable_begin, "", tag);
    return lex_tag(tag, "}}", Token::Kind::variable_end);
  }

  Status lex_comment(size_t tag) {
    const size_t close = source_.find("#}", position_);
    if (close == std::string_view::npos) {
      position_ = tag;
      return fail(ErrorCode::bad_input, "the comment has no end '#}'");
    }
    const char before = close > position_ ? source_[close - 1] : '\0';
    finish_tag(close + 2, before == '-' || before == '+' ? before : '\0', true);
    return {};
  }

  /// Where the "%}" of a tag that holds only `word` begins, its sign included; none for other tags.
  std::optional<size_t> raw_tag_end(std::string_view word, size_t tag) const {
    size_t position = tag + 2;
    if (at("-", position) || at("+", position)) ++position;
    position = skip_spaces(position);
    if (!at(word, position)) return std::nullopt;
    position = skip_spaces(position + word.size());
    const bool signed_end = at("-%}", position) || (word == "endraw" && at("+%}", position));
    if (!signed_end && !at("%}", position)) return std::nullopt;
    return position;
  }

  Status lex_raw(size_t end, size_t tag) {
    const bool strips = source_[end] == '-';
    finish_tag(end + (strips ? 3 : 2), strips ? '-' : '\0', false);
    const size_t begin = position_;
    for (size_t close = source_.find("{%", begin); close != std::string_view::npos;
         close = source_.find("{%", close + 1)) {
      const auto close_end = raw_tag_end("endraw", close);
      if (!close_end) continue;
      const char next = source_[close + 2];
      const char sign = next == '-' || next == '+' ? next : '\0';
      add_text(trim_before_tag(source_.substr(begin, close - begin), sign, false), begin);
      const char end_sign = source_[*close_end] == '%' ? '\0' : source_[*close_end];
      finish_tag(*close_end + (end_sign == '\0' ? 2 : 3), end_sign, true);
      return {};
    }
    position_ = tag;
    return fail(ErrorCode::bad_input, "the raw block has no '{% endraw %}'");
  }

  /// Whether the tag ends here; then moves behind it. Within brackets, "}}" closes two dicts instead.
  bool lex_tag_end(std::string_view close, Token::Kind kind) {
    if (!brackets_.empty()) return false;
    const bool block = kind == Token::Kind::block_end;
    const bool has_sign = at("-") || (block && at("+"));
    if (!at(close, position_ + (has_sign ? 1 : 0))) return false;
    const char sign = has_sign ? source_[position_] : '\0';
    add(kind, "", position_);
    finish_tag(position_ + (has_sign ? 3 : 2), sign, block);
    return true;
  }

  Status lex_tag(size_t tag, std::string_view close, Token::Kind end_kind) {
    brackets_.clear();
    while (true) {
      position_ = skip_spaces(position_);
      if (position_ >= source_.size()) {
        position_ = tag;
        return fail(ErrorCode::bad_input, fmt::format("the tag has no end '{}'", close));
      }
      if (lex_tag_end(close, end_kind)) return {};
      HEXLM_TRY(lex_token());
    }
  }

  Status lex_token() {
    const char first = source_[position_];
    const bool digit = first >= '0' && first <= '9';
    if (digit) return lex_number();
    if (first == '\'' || first == '"') return lex_string(first);
    if (const size_t end = word_end(); end > position_) {
      add(Token::Kind::name, std::string(source_.substr(position_, end - position_)), position_);
      position_ = end;
      return {};
    }
    return lex_symbol();
  }

  size_t word_end() const {
    size_t end = position_;
    for (size_t next = end; end < source_.size(); end = next) {
      const char32_t c = next_code_point(source_, next);
      const bool ascii_word =
          c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (!ascii_word && (c < 0x80 || is_space(c))) break;
    }
    return end;
  }

  Status lex_number() {
    // After a point, digits are an index: x.1.5 means the sixth item of the second one.
    const bool after_point = !tokens_.empty() && tokens_.back().is_symbol(".") && at(".", position_ - 1);
    HEXLM_ASSIGN(const NumberLiteral number, read_number_literal(source_.substr(position_), !after_point));
    add(number.is_real ? Token::Kind::real : Token::Kind::integer, "", position_);
    tokens_.back().integer = number.integer;
    tokens_.back().real = number.real;
    position_ += number.size;
    return {};
  }

  Status lex_string(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return fail(ErrorCode::bad_input, "the string has no closing quote");
    HEXLM_ASSIGN(std::string text, unescape_string(source_.substr(position_ + 1, end - position_ - 1)));
    add(Token::Kind::string, std::move(text), position_);
    position_ = end + 1;
    return {};
  }

  Status lex_symbol() {
    static constexpr std::string_view symbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                   "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                   ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* found =
        std::find_if(std::begin(symbols), std::end(symbols), [&](auto word) { return at(word); });
    if (found == std::end(symbols)) {
      size_t end = position_;
      next_code_point(source_, end);
      return fail(ErrorCode::bad_input,
                  fmt::format("unexpected character '{}'", source_.substr(position_, end - position_)));
    }
    HEXLM_TRY(balance((*found)[0]));
    add(Token::Kind::symbol, std::string(*found), position_);
    position_ += found->size();
    return {};
  }

  Status balance(char symbol) {
    if (symbol == '(') brackets_ += ')';
    if (symbol == '[') brackets_ += ']';
    if (symbol == '{') brackets_ += '}';
    if (symbol != ')' && symbol != ']' && symbol != '}') return {};
    if (brackets_.empty()) return fail(ErrorCode::bad_input, fmt::format("unexpected '{}'", symbol));
    if (brackets_.back() != symbol) {
      return fail(ErrorCode::bad_input, fmt::format("expected '{}', got '{}'", brackets_.back(), symbol));
    }
    brackets_.pop_back();
    return {};
  }

  std::string_view source_;
  size_t position_ = 0;
  /// Whether the last tag ended with a line break, so that what follows begins a line.
  bool line_starting_ = true;
  /// Closing brackets that the tag still needs, innermost last.
  std::string brackets_;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe_position(std::string_view source, size_t offset) {
  const std::string_view before = source.substr(0, std::min(offset, source.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t start = before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", line, count_code_points(before.substr(start)) + 1);
}

std::string normalize_source(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      result += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      result += source[i];
    }
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

Result<std::vector<Token>> tokenize(std::string_view source, size_t& error_offset) {
  Lexer lexer(source);
  auto tokens = lexer.run();
  if (!tokens) error_offset = lexer.position();
  return tokens;
}

}  // namespace hexlm::jinja
