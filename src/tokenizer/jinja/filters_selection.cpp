#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "tokenizer/jinja/arguments.hpp"
#include "tokenizer/jinja/filters.hpp"
#include "tokenizer/jinja/interpreter.hpp"
#include "tokenizer/jinja/literal.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/represent.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {

AttributePath AttributePath::parse(std::string_view attribute) {
  AttributePath path;
  for (size_t begin = 0; begin <= attribute.size();) {
    const size_t end = std::min(attribute.find('.', begin), attribute.size());
    const std::string part(attribute.substr(begin, end - begin));
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    int64_t index = 0;
    const bool number = digits && parse_python_integer(part, 10, index);
    path.parts_.push_back(number ? Value::integer(index) : make_text(nullptr, part));
    begin = end + 1;
  }
  return path;
}

Result<AttributePath> AttributePath::parse(const Value& attribute) {
  if (const Text* text = attribute.as_text()) return parse(text->bytes);
  AttributePath path;
  if (attribute.is_none()) return path;
  if (!attribute.integral()) {
    return fail(ErrorCode::bad_input,
                fmt::format("an attribute is a string or an integer, not '{}'", attribute.type_name()));
  }
  path.parts_.push_back(attribute);
  return path;
}

Result<Value> AttributePath::get(Budget& budget, Value item, const Value* otherwise) const {
  for (const Value& part : parts_) {
    HEXLM_ASSIGN(item, get_item(budget, item, part));
    if (otherwise != nullptr && item.is_undefined()) item = *otherwise;
  }
  budget.spend(parts_.size());
  return item;
}

Value ignore_case(Budget& budget, const Value& value) {
  const Text* text = value.as_text();
  if (text == nullptr || !budget.room(text->bytes.size() * 3)) return value;
  return make_text(&budget, to_lower(text->bytes));
}

namespace {

Result<Value> default_value(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("default", arguments, {"default_value", "boolean"}));
  const bool missing = input.is_undefined() || (bound.truth(1, false) && !is_true(input));
  if (!missing) return input;
  return bound[0] == nullptr ? make_text(&interpreter.budget(), "") : *bound[0];
}

Result<Value> attribute_of(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("attr", arguments, {"name"}, 1));
  HEXLM_ASSIGN(const Text* name, bound.text(0));
  if (input.as_mapping() != nullptr) {
    // Unlike `.`, this filter never looks at the items of a dict.
    HEXLM_ASSIGN(Value value, get_attribute(interpreter.budget(), input, name->bytes));
    if (value.as_object() != nullptr) return value;
    return Value::undefined(&interpreter.budget(),
                            fmt::format("'dict object' has no attribute {}", represent_name(name->bytes)));
  }
  return get_attribute(interpreter.budget(), input, name->bytes);
}

Result<Value> map_attribute(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("map", arguments, {"attribute", "default"}, 1));
  Budget& budget = interpreter.budget();
  HEXLM_ASSIGN(const AttributePath path, AttributePath::parse(*bound[0]));
  HEXLM_ASSIGN(std::vector<Value> values, iterate(budget, input));
  const Value* otherwise = bound[1] != nullptr && !bound[1]->is_none() ? bound[1] : nullptr;
  for (Value& value : values) {
    HEXLM_ASSIGN(value, path.get(budget, std::move(value), otherwise));
  }
  return make_sequence(&budget, std::move(values), Sequence::Kind::iterator);
}

Result<Value> map(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (arguments.positional.empty()) return map_attribute(interpreter, input, arguments);
  const Text* name = arguments.positional[0].as_text();
  if (name == nullptr) return fail(ErrorCode::bad_input, "map expects the name of a filter");
  HEXLM_ASSIGN(const Filter* filter, find_filter(name->bytes));
  Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.keyword};
  Budget& budget = interpreter.budget();
  HEXLM_ASSIGN(std::vector<Value> values, iterate(budget, input));
  for (Value& value : values) {
    if (!budget.spend()) break;
    HEXLM_ASSIGN(value, filter->apply(interpreter, value, rest));
  }
  return make_sequence(&budget, std::move(values), Sequence::Kind::iterator);
}

/// select, reject, selectattr and rejectattr.
template <bool Accept, bool ByAttribute>
Result<Value> select(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  constexpr size_t offset = ByAttribute ? 1 : 0;
  const auto& given = arguments.positional;
  if (given.size() < offset) return fail(ErrorCode::bad_input, "the filter needs the name of an attribute");
  AttributePath path;
  if (ByAttribute) {
    HEXLM_ASSIGN(path, AttributePath::parse(given[0]));
  }
  const Test* test = nullptr;
  Arguments rest;
  if (given.size() > offset) {
    const Text* name = given[offset].as_text();
    if (name == nullptr) return fail(ErrorCode::bad_input, "the filter expects the name of a test");
    HEXLM_ASSIGN(test, find_test(name->bytes));
    rest = Arguments{{given.begin() + offset + 1, given.end()}, arguments.keyword};
  }
  Budget& budget = interpreter.budget();
  HEXLM_ASSIGN(std::vector<Value> values, iterate(budget, input));
  std::vector<Value> chosen;
  for (Value& value : values) {
    if (!budget.spend()) break;
    HEXLM_ASSIGN(const Value tested, path.get(budget, value));
    bool holds = is_true(tested);
    if (test != nullptr) {
      HEXLM_ASSIGN(holds, test->apply(interpreter, tested, rest));
    }
    if (holds == Accept) chosen.push_back(std::move(value));
  }
  return make_sequence(&budget, std::move(chosen), Sequence::Kind::iterator);
}

constexpr std::array filters = {
    Filter{"attr", attribute_of},           Filter{"d", default_value},
    Filter{"default", default_value},       Filter{"map", map},
    Filter{"reject", select<false, false>}, Filter{"rejectattr", select<false, true>},
    Filter{"select", select<true, false>},  Filter{"selectattr", select<true, true>},
};

}  // namespace

std::span<const Filter> selection_filters() { return filters; }

}  // namespace hexlm::jinja
