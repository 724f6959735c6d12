#include "tokenizer/jinja/object.hpp"

#include <fmt/format.h>

#include "tokenizer/jinja/interpreter.hpp"

namespace hexlm::jinja {

Result<std::optional<Value>> Object::attribute(Budget&, std::string_view) { return std::optional<Value>(); }

Result<Value> Object::call(Interpreter&, Arguments&&) {
  return fail(ErrorCode::bad_input, fmt::format("'{}' is not callable", type_name()));
}

Value make_object(Budget& budget, std::shared_ptr<Object> object) {
  if (object->depth() > max_value_depth) {
    budget.exhaust("the template nests values deeper than 320 levels");
    return Value();
  }
  return Value::object(std::move(object));
}

Result<std::optional<Value>> Namespace::attribute(Budget& budget, std::string_view name) {
  budget.spend(attributes_.size() / names_per_step);
  for (const auto& [key, value] : attributes_) {
    if (key == name) return std::optional<Value>(value);
  }
  return std::optional<Value>();
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, known] : attributes_) {
    if (key == name) {
      known = std::move(value);
      return;
    }
  }
  attributes_.emplace_back(std::string(name), std::move(value));
}

Result<Value> Function::call(Interpreter& interpreter, Arguments&& arguments) {
  return body_(interpreter, arguments);
}

Result<Value> BoundMethod::call(Interpreter& interpreter, Arguments&& arguments) {
  return body_(interpreter.budget(), self_, arguments);
}

}  // namespace hexlm::jinja
