#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "tokenizer/jinja/value.hpp"

namespace hexlm::jinja {

/// Python's repr of a float: the shortest digits that read back as the same number, with an exponent below
/// 1e-4 and from 1e16 on; always with a point or an exponent.
std::string represent_real(double value);
/// Python's repr of a text: single quotes unless it holds those and no double quotes.
std::string represent_text(std::string_view text);

/// The same for messages: long names are cut.
std::string represent_name(std::string_view name);

/// Python's str: what `{{ value }}` prints. Stops early when the budget is exhausted.
std::string to_text(Budget& budget, const Value& value);
/// Python's repr. Stops early when the budget is exhausted.
std::string represent(Budget& budget, const Value& value);

/// Options of Python's json.dumps.
struct JsonFormat {
  bool escape_non_ascii = false;
  bool sort_keys = false;
  /// One item a line if set, each level moved in by `indent`.
  bool multiline = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// json.dumps. Errors: bad_input for what JSON cannot express (undefined values, functions, iterators).
/// Stops early when the budget is exhausted.
Result<std::string> to_json(Budget& budget, const Value& value, const JsonFormat& format);

}  // namespace hexlm::jinja
