#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace hexlm {

/// A regular expression over module names, as Python's `re` reads those of adapter_config.json and
/// quantization_config. Matching is bounded (PCRE2's match limit), so that a pattern cannot hang the program.
class NamePattern {
 public:
  /// The expression must match the whole name. Errors: bad_input, naming `origin` and the expression.
  static Result<NamePattern> whole(std::string_view expression, const std::string& origin);
  /// The expression must match from the name's beginning (Python's re.match).
  static Result<NamePattern> beginning(std::string_view expression, const std::string& origin);

  /// Errors: limit when the expression takes too long.
  Result<bool> matches(std::string_view name) const;

 private:
  struct Code;
  static Result<NamePattern> compile(std::string_view expression, const std::string& origin,
                                     uint32_t options);
  std::shared_ptr<const Code> code_;
};

}  // namespace hexlm
