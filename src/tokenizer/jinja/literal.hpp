#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace hexlm::jinja {

struct NumberLiteral {
  bool is_real = false;
  /// As unsigned: literals have no sign.
  uint64_t integer = 0;
  double real = 0;
  /// Bytes of the source that it takes.
  size_t size = 0;
};

/// The number that `source` begins with (a digit): decimal, 0x, 0o, 0b, `_` between digits, and fractions and
/// exponents if `allow_real`. Errors: limit beyond 64 bits.
Result<NumberLiteral> read_number_literal(std::string_view source, bool allow_real);

/// The text of a string literal without its quotes, with Python's escapes; unknown ones stay as they are.
/// Errors: bad_input for an incomplete escape, unsupported for names (\N) and surrogates.
Result<std::string> unescape_string(std::string_view literal);

/// int(text): surrounding space, a sign, digits with `_` between them, and with `base` 0 or 16, 8, 2 a
/// prefix. False if `text` is no integer or exceeds 64 bits.
bool parse_python_integer(std::string_view text, int base, int64_t& value);
/// float(text): surrounding space, a sign, digits with `_` between them, inf and nan. False if it is none.
bool parse_python_real(std::string_view text, double& value);

}  // namespace hexlm::jinja
