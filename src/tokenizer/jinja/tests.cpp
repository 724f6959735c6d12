#include <array>
#include <fmt/format.h>

#include "tokenizer/jinja/arguments.hpp"
#include "tokenizer/jinja/filters.hpp"
#include "tokenizer/jinja/interpreter.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/represent.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is_boolean(); }
bool is_the_true(const Value& value) { return value.as_boolean() != nullptr && *value.as_boolean(); }
bool is_the_false(const Value& value) { return value.as_boolean() != nullptr && !*value.as_boolean(); }
bool is_integer(const Value& value) { return value.as_integer() != nullptr || value.as_large() != nullptr; }
bool is_real(const Value& value) { return value.as_real() != nullptr; }
bool is_number_or_boolean(const Value& value) {
  return is_integer(value) || is_real(value) || value.is_boolean();
}
bool is_string(const Value& value) { return value.as_text() != nullptr; }
bool is_mapping(const Value& value) { return value.as_mapping() != nullptr; }
bool is_escaped(const Value& value) { return value.as_text() != nullptr && value.as_text()->markup; }
bool is_callable(const Value& value) {
  // An undefined value has a method for calls, which raises.
  return value.is_undefined() || (value.as_object() != nullptr && value.as_object()->callable());
}

bool is_sequence(const Value& value) {
  // Whatever has both a length and items by key is one for Jinja, dicts included.
  if (value.as_text() != nullptr || value.as_mapping() != nullptr || value.is_undefined()) return true;
  const Sequence* sequence = value.as_sequence();
  return sequence != nullptr &&
         (sequence->kind == Sequence::Kind::list || sequence->kind == Sequence::Kind::tuple ||
          sequence->kind == Sequence::Kind::range);
}

template <bool (*Predicate)(const Value&)>
Result<bool> simple(Interpreter&, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("the test", arguments, {}));
  return Predicate(input);
}

template <bool (*Passes)(char32_t)>
Result<bool> cased(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("the test", arguments, {}));
  const std::string text = to_text(interpreter.budget(), input);
  bool found = false;
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    if (!is_cased(c)) continue;
    if (!Passes(c)) return false;
    found = true;
  }
  return found;
}

Result<bool> remainder_is(Budget& budget, const Value& input, const Value& divisor, int64_t expected) {
  HEXLM_ASSIGN(const Value remainder, calculate(budget, Arithmetic::modulo, input, divisor));
  return is_equal(budget, remainder, Value::integer(expected));
}

template <int64_t Remainder>
Result<bool> parity(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("the test", arguments, {}));
  return remainder_is(interpreter.budget(), input, Value::integer(2), Remainder);
}

Result<bool> divisible_by(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("divisibleby", arguments, {"num"}, 1));
  return remainder_is(interpreter.budget(), input, *bound[0], 0);
}

template <bool Equal>
Result<bool> equality(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("the test", arguments, {"other"}, 1));
  return is_equal(interpreter.budget(), input, *bound[0]) == Equal;
}

/// Holds for `Wanted`, and for equality if `OrEqual`.
template <Order Wanted, bool OrEqual>
Result<bool> ordered(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("the test", arguments, {"other"}, 1));
  HEXLM_ASSIGN(const Order order, compare(interpreter.budget(), input, *bound[0]));
  return order == Wanted || (OrEqual && order == Order::equal);
}

Result<bool> same_as(Interpreter&, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("sameas", arguments, {"other"}, 1));
  return input.same_as(*bound[0]);
}

Result<bool> in(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("in", arguments, {"seq"}, 1));
  return contains(interpreter.budget(), *bound[0], input);
}

Result<bool> is_filter(Interpreter&, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("filter", arguments, {}));
  return input.as_text() != nullptr && find_filter(input.as_text()->bytes).has_value();
}

Result<bool> is_test(Interpreter&, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("test", arguments, {}));
  return input.as_text() != nullptr && find_test(input.as_text()->bytes).has_value();
}

constexpr std::array tests = {
    Test{"!=", equality<false>},
    Test{"<", ordered<Order::less, false>},
    Test{"<=", ordered<Order::less, true>},
    Test{"==", equality<true>},
    Test{">", ordered<Order::greater, false>},
    Test{">=", ordered<Order::greater, true>},
    Test{"boolean", simple<is_boolean>},
    Test{"callable", simple<is_callable>},
    Test{"defined", simple<is_defined>},
    Test{"divisibleby", divisible_by},
    Test{"eq", equality<true>},
    Test{"equalto", equality<true>},
    Test{"escaped", simple<is_escaped>},
    Test{"even", parity<0>},
    Test{"false", simple<is_the_false>},
    Test{"filter", is_filter},
    Test{"float", simple<is_real>},
    Test{"ge", ordered<Order::greater, true>},
    Test{"greaterthan", ordered<Order::greater, false>},
    Test{"gt", ordered<Order::greater, false>},
    Test{"in", in},
    Test{"integer", simple<is_integer>},
    Test{"iterable", simple<is_iterable>},
    Test{"le", ordered<Order::less, true>},
    Test{"lessthan", ordered<Order::less, false>},
    Test{"lower", cased<is_lower>},
    Test{"lt", ordered<Order::less, false>},
    Test{"mapping", simple<is_mapping>},
    Test{"ne", equality<false>},
    Test{"none", simple<is_none>},
    Test{"number", simple<is_number_or_boolean>},
    Test{"odd", parity<1>},
    Test{"sameas", same_as},
    Test{"sequence", simple<is_sequence>},
    Test{"string", simple<is_string>},
    Test{"test", is_test},
    Test{"true", simple<is_the_true>},
    Test{"undefined", simple<is_undefined>},
    Test{"upper", cased<is_upper>},
};

}  // namespace

std::span<const Test> all_tests() { return tests; }

}  // namespace hexlm::jinja
