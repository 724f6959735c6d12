#include "tokenizer/jinja/literal.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return std::numeric_limits<int>::max();
}

/// Length of the digits of `base` at the beginning, single `_` between them included.
size_t digits_length(std::string_view text, int base) {
  size_t length = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (digit_of(text[i]) < base) {
      length = i + 1;
    } else if (text[i] != '_' || i == 0 || length != i) {
      break;
    }
  }
  return length;
}

std::string without_underscores(std::string_view text) {
  std::string result(text);
  std::erase(result, '_');
  return result;
}

template <class Integer>
bool parse_digits(std::string_view digits, int base, Integer& value) {
  const std::string plain = without_underscores(digits);
  const auto result = std::from_chars(plain.data(), plain.data() + plain.size(), value, base);
  return result.ec == std::errc() && result.ptr == plain.data() + plain.size();
}

int prefix_base(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 10;
  switch (text[1]) {
    case 'x':
    case 'X':
      return 16;
    case 'o':
    case 'O':
      return 8;
    case 'b':
    case 'B':
      return 2;
    default:
      return 10;
  }
}

/// Length of `.digits` and of an exponent at `position`; 0 if there is neither.
size_t fraction_length(std::string_view source, size_t position) {
  size_t end = position;
  if (end < source.size() && source[end] == '.') {
    const size_t digits = digits_length(source.substr(end + 1), 10);
    if (digits > 0) end += 1 + digits;
  }
  if (end < source.size() && (source[end] == 'e' || source[end] == 'E')) {
    size_t exponent = end + 1;
    if (exponent < source.size() && (source[exponent] == '+' || source[exponent] == '-')) ++exponent;
    const size_t digits = digits_length(source.substr(std::min(exponent, source.size())), 10);
    if (digits > 0) end = exponent + digits;
  }
  return end - position;
}

double parse_real(std::string_view text) {
  const std::string plain = without_underscores(text);
  double value = 0;
  const auto result = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (result.ec != std::errc::result_out_of_range) return value;
  // Too small to hold reads as zero, too large as infinity.
  const size_t mark = plain.find_first_of("eE");
  const bool tiny = mark != std::string::npos && plain.find('-', mark) != std::string::npos;
  return tiny ? 0.0 : std::numeric_limits<double>::infinity();
}

}  // namespace

Result<NumberLiteral> read_number_literal(std::string_view source, bool allow_real) {
  NumberLiteral number;
  const int base = prefix_base(source);
  if (base != 10) {
    // A `_` may follow the prefix.
    const size_t skip = source.size() > 2 && source[2] == '_' ? 3 : 2;
    const size_t digits = digits_length(source.substr(skip), base);
    if (digits > 0) {
      number.size = skip + digits;
      if (parse_digits(source.substr(skip, digits), base, number.integer)) return number;
      return fail(ErrorCode::limit,
                  fmt::format("the number '{}' exceeds 64 bits", source.substr(0, number.size)));
    }
  }
  number.size = digits_length(source, 10);
  const size_t fraction = allow_real ? fraction_length(source, number.size) : 0;
  if (fraction > 0) {
    number.size += fraction;
    number.is_real = true;
    number.real = parse_real(source.substr(0, number.size));
    return number;
  }
  // Other digits cannot follow a leading zero: Jinja reads 012 as 0 and 12.
  if (source[0] == '0') number.size = std::min(source.find_first_not_of("0_"), number.size);
  if (parse_digits(source.substr(0, number.size), 10, number.integer)) return number;
  return fail(ErrorCode::limit,
              fmt::format("the number '{}' exceeds 64 bits", source.substr(0, number.size)));
}

namespace {

/// Appends the character of a \x, \u or \U escape of `length` digits at `position`, which moves behind them.
Status unescape_code_point(std::string_view literal, size_t& position, size_t length, std::string& text) {
  char32_t character = 0;
  for (size_t i = 0; i < length; ++i, ++position) {
    const int digit = position < literal.size() ? digit_of(literal[position]) : 16;
    if (digit >= 16) return fail(ErrorCode::bad_input, "a string has an incomplete hexadecimal escape");
    character = character * 16 + static_cast<char32_t>(digit);
  }
  if (character > 0x10FFFF) return fail(ErrorCode::bad_input, "a string escapes a character beyond U+10FFFF");
  if (character >= 0xD800 && character <= 0xDFFF) {
    return fail(ErrorCode::unsupported, "a string escapes a surrogate, which UTF-8 cannot hold");
  }
  append_code_point(text, character);
  return {};
}

Status unescape_one(std::string_view literal, size_t& position, std::string& text) {
  const char kind = literal[position++];
  switch (kind) {
    case '\n':
      return {};
    case 'n':
      text += '\n';
      return {};
    case 't':
      text += '\t';
      return {};
    case 'r':
      text += '\r';
      return {};
    case 'a':
      text += '\a';
      return {};
    case 'b':
      text += '\b';
      return {};
    case 'f':
      text += '\f';
      return {};
    case 'v':
      text += '\v';
      return {};
    case '\\':
    case '\'':
    case '"':
      text += kind;
      return {};
    case 'x':
      return unescape_code_point(literal, position, 2, text);
    case 'u':
      return unescape_code_point(literal, position, 4, text);
    case 'U':
      return unescape_code_point(literal, position, 8, text);
    case 'N':
      return fail(ErrorCode::unsupported, "a string escapes a character by name (\\N)");
    default:
      break;
  }
  if (digit_of(kind) >= 8) {
    text += '\\';
    text += kind;
    return {};
  }
  auto character = static_cast<char32_t>(digit_of(kind));
  for (int i = 0; i < 2 && position < literal.size() && digit_of(literal[position]) < 8; ++i) {
    character = character * 8 + static_cast<char32_t>(digit_of(literal[position++]));
  }
  append_code_point(text, character);
  return {};
}

}  // namespace

Result<std::string> unescape_string(std::string_view literal) {
  std::string text;
  text.reserve(literal.size());
  for (size_t position = 0; position < literal.size();) {
    if (literal[position] != '\\' || position + 1 == literal.size()) {
      text += literal[position++];
      continue;
    }
    HEXLM_TRY(unescape_one(literal, ++position, text));
  }
  return text;
}

bool parse_python_integer(std::string_view text, int base, int64_t& value) {
  text = strip(text, true, true);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const int prefix = prefix_base(text);
  if (prefix != 10 && (base == 0 || base == prefix)) {
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
    base = prefix;
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return false;
  }
  if (text.empty() || digits_length(text, base) != text.size()) return false;
  return parse_digits(fmt::format("{}{}", negative ? "-" : "", text), base, value);
}

bool parse_python_real(std::string_view text, double& value) {
  text = strip(text, true, true);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const std::string lower = to_lower(text);
  if (lower == "inf" || lower == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    size_t digits = digits_length(text, 10);
    // Unlike a template's literals, "1." and ".5" are numbers here.
    size_t end = digits;
    if (end < text.size() && text[end] == '.') {
      const size_t decimals = digits_length(text.substr(end + 1), 10);
      end += 1 + decimals;
      digits += decimals;
    }
    if (digits == 0 || end + fraction_length(text, end) != text.size()) return false;
    if (end < text.size() && text[end] == '.') return false;
    value = parse_real(text);
  }
  if (negative) value = -value;
  return true;
}

}  // namespace hexlm::jinja
