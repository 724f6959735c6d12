#include <fmt/format.h>

#include "tokenizer/jinja/interpreter.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/represent.hpp"

namespace hexlm::jinja {

Result<Value> Interpreter::evaluate(const Expression& expression) {
  if (++depth_ > max_evaluation_depth) budget_.exhaust("the template calls itself too deeply");
  if (!budget_.spend()) {
    --depth_;
    error_offset_ = error_offset_.value_or(expression.offset);
    return tl::unexpected<Error>(budget_.error());
  }
  Result<Value> value = std::visit([this](const auto& node) { return form(node); }, expression.form);
  --depth_;
  if (value && budget_.exhausted()) value = tl::unexpected<Error>(budget_.error());
  if (!value && !error_offset_) error_offset_ = expression.offset;
  return value;
}

Result<Value> Interpreter::form(const Literal& node) { return node.value; }

Result<Value> Interpreter::form(const Name& node) { return resolve(node.name); }

Value Interpreter::resolve(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    budget_.spend(scope->variables.size() / names_per_step);
    if (const Value* value = scope->find(name)) return *value;
  }
  if (const Value* value = context_.find(std::string_view(name))) return *value;
  if (auto global = find_global(name)) return *std::move(global);
  return Value::undefined(&budget_, fmt::format("{} is undefined", represent_name(name)));
}

Result<Value> Interpreter::form(const ListLiteral& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const auto& item : node.items) {
    HEXLM_ASSIGN(Value value, evaluate(*item));
    items.push_back(std::move(value));
  }
  return make_sequence(&budget_, std::move(items), node.tuple ? Sequence::Kind::tuple : Sequence::Kind::list);
}

Result<Value> Interpreter::form(const DictLiteral& node) {
  Mapping::Entries entries;
  entries.reserve(node.items.size());
  for (const auto& [key_node, value_node] : node.items) {
    HEXLM_ASSIGN(Value key, evaluate(*key_node));
    HEXLM_ASSIGN(Value value, evaluate(*value_node));
    if (!hash_key(key)) {
      return fail(ErrorCode::bad_input, fmt::format("'{}' cannot be a key", key.type_name()));
    }
    entries.emplace_back(std::move(key), std::move(value));
  }
  return make_mapping(&budget_, std::move(entries));
}

Result<Value> Interpreter::form(const Unary& node) {
  HEXLM_ASSIGN(Value operand, evaluate(*node.operand));
  if (node.operation == Unary::Operator::invert) return Value::boolean(!is_true(operand));
  HEXLM_ASSIGN(Value negated, negate(operand));
  if (node.operation == Unary::Operator::negate) return negated;
  if (const auto integer = operand.integral()) return Value::integer(*integer);
  return operand;
}

Result<Value> Interpreter::form(const ArithmeticChain& node) {
  HEXLM_ASSIGN(Value value, evaluate(*node.first));
  for (const auto& [operation, operand_node] : node.rest) {
    HEXLM_ASSIGN(const Value operand, evaluate(*operand_node));
    HEXLM_ASSIGN(value, calculate(budget_, operation, value, operand));
  }
  return value;
}

Result<Value> Interpreter::form(const Logical& node) {
  Value value;
  for (const auto& operand : node.operands) {
    HEXLM_ASSIGN(value, evaluate(*operand));
    if (is_true(value) != node.conjunction) break;
  }
  return value;
}

Result<bool> Interpreter::compare(Comparison::Operator operation, const Value& left, const Value& right) {
  using Operator = Comparison::Operator;
  switch (operation) {
    case Operator::equal:
      return is_equal(budget_, left, right);
    case Operator::not_equal:
      return !is_equal(budget_, left, right);
    case Operator::in:
      return contains(budget_, right, left);
    case Operator::not_in: {
      HEXLM_ASSIGN(const bool found, contains(budget_, right, left));
      return !found;
    }
    default:
      break;
  }
  HEXLM_ASSIGN(const Order order, jinja::compare(budget_, left, right));
  switch (operation) {
    case Operator::less:
      return order == Order::less;
    case Operator::less_equal:
      return order == Order::less || order == Order::equal;
    case Operator::greater:
      return order == Order::greater;
    default:
      return order == Order::greater || order == Order::equal;
  }
}

Result<Value> Interpreter::form(const Comparison& node) {
  HEXLM_ASSIGN(Value left, evaluate(*node.first));
  for (const auto& [operation, operand] : node.rest) {
    HEXLM_ASSIGN(Value right, evaluate(*operand));
    HEXLM_ASSIGN(const bool holds, compare(operation, left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::form(const Concatenation& node) {
  std::string text;
  for (const auto& operand : node.operands) {
    HEXLM_ASSIGN(const Value value, evaluate(*operand));
    text += to_text(budget_, value);
    if (!budget_.room(text.size())) break;
  }
  return make_text(&budget_, std::move(text));
}

Result<Value> Interpreter::form(const Conditional& node) {
  HEXLM_ASSIGN(const Value condition, evaluate(*node.condition));
  if (is_true(condition)) return evaluate(*node.value);
  if (node.otherwise != nullptr) return evaluate(*node.otherwise);
  return Value::undefined(&budget_, "the inline if is false and has no else");
}

Result<Value> Interpreter::form(const AttributeAccess& node) {
  HEXLM_ASSIGN(const Value object, evaluate(*node.object));
  return get_attribute(budget_, object, node.name);
}

Result<Value> Interpreter::form(const Subscript& node) {
  HEXLM_ASSIGN(const Value object, evaluate(*node.object));
  HEXLM_ASSIGN(const Value key, evaluate(*node.key));
  return get_item(budget_, object, key);
}

Result<Value> Interpreter::evaluate_or_none(const ExpressionPtr& expression) {
  return expression == nullptr ? Value() : evaluate(*expression);
}

Result<Value> Interpreter::form(const SliceAccess& node) {
  HEXLM_ASSIGN(const Value object, evaluate(*node.object));
  HEXLM_ASSIGN(const Value start, evaluate_or_none(node.start));
  HEXLM_ASSIGN(const Value stop, evaluate_or_none(node.stop));
  HEXLM_ASSIGN(const Value step, evaluate_or_none(node.step));
  return get_slice(budget_, object, start, stop, step);
}

Result<Arguments> Interpreter::evaluate(const ArgumentList& list) {
  Arguments arguments;
  for (const auto& node : list.positional) {
    HEXLM_ASSIGN(Value value, evaluate(*node));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, node] : list.keyword) {
    HEXLM_ASSIGN(Value value, evaluate(*node));
    arguments.keyword.emplace_back(name, std::move(value));
  }
  HEXLM_TRY(unpack(list, arguments));
  return arguments;
}

Status Interpreter::unpack(const ArgumentList& list, Arguments& arguments) {
  if (list.unpacked_list != nullptr) {
    HEXLM_ASSIGN(const Value value, evaluate(*list.unpacked_list));
    HEXLM_ASSIGN(std::vector<Value> items, iterate(budget_, value));
    for (Value& item : items) arguments.positional.push_back(std::move(item));
  }
  if (list.unpacked_dict == nullptr) return {};
  HEXLM_ASSIGN(const Value value, evaluate(*list.unpacked_dict));
  const Mapping* mapping = value.as_mapping();
  if (mapping == nullptr) {
    return fail(ErrorCode::bad_input, fmt::format("'**' expects a dict, not '{}'", value.type_name()));
  }
  for (const auto& [key, item] : mapping->entries) {
    const Text* name = key.as_text();
    if (name == nullptr) return fail(ErrorCode::bad_input, "'**' expects a dict whose keys are strings");
    for (const auto& [known, other] : arguments.keyword) {
      if (known == name->bytes) {
        return fail(ErrorCode::bad_input, fmt::format("the argument '{}' is given twice", known));
      }
    }
    if (!budget_.spend_bytes(name->bytes.size() + arguments.keyword.size())) break;
    arguments.keyword.emplace_back(name->bytes, item);
  }
  return {};
}

Result<Value> Interpreter::call(const Value& callee, Arguments arguments) {
  if (Object* object = callee.as_object()) return object->call(*this, std::move(arguments));
  if (callee.is_undefined()) return fail(ErrorCode::bad_input, callee.reason());
  return fail(ErrorCode::bad_input, fmt::format("'{}' is not callable", callee.type_name()));
}

Result<Value> Interpreter::form(const CallExpression& node) {
  HEXLM_ASSIGN(const Value callee, evaluate(*node.callee));
  HEXLM_ASSIGN(Arguments arguments, evaluate(node.arguments));
  return call(callee, std::move(arguments));
}

Result<Value> Interpreter::apply(const FilterExpression& node, const Value& input) {
  HEXLM_ASSIGN(const Arguments arguments, evaluate(node.arguments));
  return node.filter->apply(*this, input, arguments);
}

Result<Value> Interpreter::apply(const std::vector<FilterExpression>& filters, Value value) {
  for (const FilterExpression& filter : filters) {
    HEXLM_ASSIGN(value, apply(filter, value));
  }
  return value;
}

Result<Value> Interpreter::form(const FilterExpression& node) {
  HEXLM_ASSIGN(const Value input, evaluate(*node.input));
  return apply(node, input);
}

Result<Value> Interpreter::form(const TestExpression& node) {
  HEXLM_ASSIGN(const Value input, evaluate(*node.input));
  HEXLM_ASSIGN(const Arguments arguments, evaluate(node.arguments));
  HEXLM_ASSIGN(const bool holds, node.test->apply(*this, input, arguments));
  return Value::boolean(holds);
}

}  // namespace hexlm::jinja
