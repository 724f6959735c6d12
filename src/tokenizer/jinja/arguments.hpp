#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/jinja/object.hpp"

namespace hexlm::jinja {

/// The arguments of a call by parameter: positional ones in order, keyword ones by name.
class Bound {
 public:
  /// `parameters` in order; the first `required` must be given. Errors: bad_input for too many or too few
  /// arguments, an unknown keyword, or a parameter given twice. The arguments must outlive the result.
  static Result<Bound> bind(std::string_view function, const Arguments& arguments,
                            std::initializer_list<std::string_view> parameters, size_t required = 0);

  /// Null when the argument was not given.
  const Value* operator[](size_t parameter) const { return values_[parameter]; }
  /// Errors of the following: bad_input for a value of another type, named with function and parameter.
  Result<int64_t> integer(size_t parameter, int64_t otherwise) const;
  /// None when not given or given as none.
  Result<std::optional<int64_t>> optional_integer(size_t parameter) const;
  Result<const Text*> text(size_t parameter, const Text* otherwise = nullptr) const;
  /// Null when not given or given as none.
  Result<const Text*> optional_text(size_t parameter) const;
  bool truth(size_t parameter, bool otherwise) const;

 private:
  tl::unexpected<Error> wrong_type(size_t parameter, std::string_view expected) const;

  std::string_view function_;
  std::vector<std::string_view> parameters_;
  std::vector<const Value*> values_;
};

}  // namespace hexlm::jinja
