#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "tokenizer/jinja/value.hpp"

namespace hexlm::jinja {

/// How one value is written, in the terms that `%` and `format` share.
struct FormatSpecification {
  /// '<', '>', '^', '=' (padding behind the sign), or 0 for the type's default.
  char align = 0;
  std::string fill = " ";
  /// '+' or ' ' before positive numbers, 0 for nothing.
  char sign = 0;
  /// "0x" and the like before numbers of other bases.
  bool alternate = false;
  int64_t width = 0;
  /// Negative when not given.
  int64_t precision = -1;
  /// Conversion letter, 0 for the type's default.
  char type = 0;
};

/// Errors: bad_input when the value's type has no such conversion, limit for a precision above 1000.
Result<std::string> format_value(Budget& budget, const Value& value,
                                 const FormatSpecification& specification);

/// Reads digits at `position`, which moves behind them. Errors: limit above 9 digits.
Result<int64_t> read_number(std::string_view text, size_t& position);

}  // namespace hexlm::jinja
