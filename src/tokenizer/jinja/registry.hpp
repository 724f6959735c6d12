#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/jinja/object.hpp"

namespace hexlm::jinja {

/// A filter of the subset: `input | name(arguments)`.
struct Filter {
  std::string_view name;
  Result<Value> (*apply)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
};

/// A test of the subset: `input is name(arguments)`.
struct Test {
  std::string_view name;
  Result<bool> (*apply)(Interpreter& interpreter, const Value& input, const Arguments& arguments);
};

/// Errors: unsupported, naming the nearest known filter or test.
Result<const Filter*> find_filter(std::string_view name);
Result<const Test*> find_test(std::string_view name);
/// The error for a name that is none of `known`: "there is no filter 'x'", hint "did you mean 'y'?".
Error unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& known);

/// The function or constant of the environment with this name; none if there is none.
std::optional<Value> find_global(std::string_view name);

}  // namespace hexlm::jinja
