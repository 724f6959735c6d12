#include "tokenizer/jinja/arguments.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "tokenizer/jinja/operators.hpp"

namespace hexlm::jinja {

Result<Bound> Bound::bind(std::string_view function, const Arguments& arguments,
                          std::initializer_list<std::string_view> parameters, size_t required) {
  Bound bound;
  bound.function_ = function;
  bound.parameters_.assign(parameters);
  bound.values_.resize(parameters.size(), nullptr);
  if (arguments.positional.size() > parameters.size()) {
    return fail(ErrorCode::bad_input, fmt::format("{} takes at most {} arguments, not {}", function,
                                                  parameters.size(), arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound.values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keyword) {
    const auto found = std::find(bound.parameters_.begin(), bound.parameters_.end(), name);
    if (found == bound.parameters_.end()) {
      return fail(ErrorCode::bad_input, fmt::format("{} has no parameter '{}'", function, name));
    }
    const Value*& slot = bound.values_[static_cast<size_t>(found - bound.parameters_.begin())];
    if (slot != nullptr) {
      return fail(ErrorCode::bad_input, fmt::format("{} got its parameter '{}' twice", function, name));
    }
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound.values_[i] == nullptr) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{} needs its argument '{}'", function, bound.parameters_[i]));
    }
  }
  return bound;
}

tl::unexpected<Error> Bound::wrong_type(size_t parameter, std::string_view expected) const {
  const Value& value = *values_[parameter];
  if (value.is_undefined()) return fail(ErrorCode::bad_input, value.reason());
  return fail(ErrorCode::bad_input, fmt::format("{} expects {} as '{}', not '{}'", function_, expected,
                                                parameters_[parameter], value.type_name()));
}

Result<int64_t> Bound::integer(size_t parameter, int64_t otherwise) const {
  if (values_[parameter] == nullptr) return otherwise;
  const auto value = values_[parameter]->integral();
  if (!value) return wrong_type(parameter, "an integer");
  return *value;
}

Result<std::optional<int64_t>> Bound::optional_integer(size_t parameter) const {
  if (values_[parameter] == nullptr || values_[parameter]->is_none()) return std::optional<int64_t>();
  HEXLM_ASSIGN(const int64_t value, integer(parameter, 0));
  return std::optional<int64_t>(value);
}

Result<const Text*> Bound::text(size_t parameter, const Text* otherwise) const {
  if (values_[parameter] == nullptr) return otherwise;
  const Text* value = values_[parameter]->as_text();
  if (value == nullptr) return wrong_type(parameter, "a string");
  return value;
}

Result<const Text*> Bound::optional_text(size_t parameter) const {
  if (values_[parameter] == nullptr || values_[parameter]->is_none()) return nullptr;
  return text(parameter);
}

bool Bound::truth(size_t parameter, bool otherwise) const {
  return values_[parameter] == nullptr ? otherwise : is_true(*values_[parameter]);
}

}  // namespace hexlm::jinja
