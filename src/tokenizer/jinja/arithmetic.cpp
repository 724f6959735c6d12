#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "tokenizer/jinja/format.hpp"
#include "tokenizer/jinja/operators.hpp"

namespace hexlm::jinja {
namespace {

constexpr std::string_view symbol(Arithmetic operation) {
  switch (operation) {
    case Arithmetic::add:
      return "+";
    case Arithmetic::subtract:
      return "-";
    case Arithmetic::multiply:
      return "*";
    case Arithmetic::divide:
      return "/";
    case Arithmetic::floor_divide:
      return "//";
    case Arithmetic::modulo:
      return "%";
    case Arithmetic::power:
      return "**";
  }
  return "?";
}

tl::unexpected<Error> overflow() { return fail(ErrorCode::limit, "an integer result exceeds 64 bits"); }
tl::unexpected<Error> zero_division() { return fail(ErrorCode::bad_input, "division by zero"); }

tl::unexpected<Error> wrong_operands(Arithmetic operation, const Value& left, const Value& right) {
  if (left.is_undefined()) return fail(ErrorCode::bad_input, left.reason());
  if (right.is_undefined()) return fail(ErrorCode::bad_input, right.reason());
  if (left.as_large() != nullptr || right.as_large() != nullptr) return overflow();
  return fail(ErrorCode::bad_input, fmt::format("'{}' does not apply to '{}' and '{}'", symbol(operation),
                                                left.type_name(), right.type_name()));
}

Result<Value> real_power(double base, double exponent) {
  if (base == 0 && exponent < 0) return zero_division();
  const double result = std::pow(base, exponent);
  if (std::isnan(result) && !std::isnan(base) && !std::isnan(exponent)) {
    return fail(ErrorCode::bad_input, "a root of a negative number is not real");
  }
  if (std::isinf(result) && !std::isinf(base) && !std::isinf(exponent)) {
    return fail(ErrorCode::bad_input, "the result of '**' is too large");
  }
  return Value::real(result);
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return real_power(static_cast<double>(base), static_cast<double>(exponent));
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow();
    exponent >>= 1;
    // The last square is not used and may overflow.
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow();
  }
  return Value::integer(result);
}

Result<Value> integer_division(Arithmetic operation, int64_t left, int64_t right) {
  if (right == 0) return zero_division();
  if (left == std::numeric_limits<int64_t>::min() && right == -1) {
    if (operation == Arithmetic::modulo) return Value::integer(0);
    return overflow();
  }
  // Python rounds the quotient down and gives the remainder the divisor's sign.
  const int64_t remainder = left % right;
  const bool adjust = remainder != 0 && (remainder < 0) != (right < 0);
  if (operation == Arithmetic::modulo) return Value::integer(adjust ? remainder + right : remainder);
  return Value::integer(left / right - (adjust ? 1 : 0));
}

Result<Value> calculate_integers(Arithmetic operation, int64_t left, int64_t right) {
  int64_t result = 0;
  switch (operation) {
    case Arithmetic::add:
      if (__builtin_add_overflow(left, right, &result)) return overflow();
      return Value::integer(result);
    case Arithmetic::subtract:
      if (__builtin_sub_overflow(left, right, &result)) return overflow();
      return Value::integer(result);
    case Arithmetic::multiply:
      if (__builtin_mul_overflow(left, right, &result)) return overflow();
      return Value::integer(result);
    case Arithmetic::divide:
      if (right == 0) return zero_division();
      // The long double quotient is exact enough to round once more to the double that Python gives.
      return Value::real(
          static_cast<double>(static_cast<long double>(left) / static_cast<long double>(right)));
    case Arithmetic::floor_divide:
    case Arithmetic::modulo:
      return integer_division(operation, left, right);
    case Arithmetic::power:
      return integer_power(left, right);
  }
  return overflow();
}

Result<Value> calculate_reals(Arithmetic operation, double left, double right) {
  switch (operation) {
    case Arithmetic::add:
      return Value::real(left + right);
    case Arithmetic::subtract:
      return Value::real(left - right);
    case Arithmetic::multiply:
      return Value::real(left * right);
    case Arithmetic::divide:
      if (right == 0) return zero_division();
      return Value::real(left / right);
    case Arithmetic::power:
      return real_power(left, right);
    case Arithmetic::floor_divide:
    case Arithmetic::modulo:
      break;
  }
  if (right == 0) return zero_division();
  double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder != 0 && (remainder < 0) != (right < 0)) {
    remainder += right;
    quotient -= 1;
  }
  if (operation == Arithmetic::modulo)
    return Value::real(remainder == 0 ? std::copysign(0.0, right) : remainder);
  // Rounding may have left the quotient just off the integer that it stands for.
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1;
  return Value::real(quotient == 0 ? std::copysign(0.0, left / right) : whole);
}

Result<Value> join_texts(Budget& budget, const Text& left, const Text& right) {
  if (!budget.room(left.bytes.size() + right.bytes.size())) return make_text(&budget, {});
  if (left.markup == right.markup) return make_text(&budget, left.bytes + right.bytes, left.markup);
  const Value escaped = escape_markup(budget, left.markup ? right.bytes : left.bytes);
  const std::string& other = escaped.as_text()->bytes;
  return make_text(&budget, left.markup ? left.bytes + other : other + right.bytes, true);
}

Result<Value> join_sequences(Budget& budget, const Sequence& left, const Sequence& right) {
  std::vector<Value> items;
  const size_t size = left.items.size() + right.items.size();
  if (budget.room(size * sizeof(Value)) && budget.spend(size)) {
    items.reserve(size);
    items.insert(items.end(), left.items.begin(), left.items.end());
    items.insert(items.end(), right.items.begin(), right.items.end());
  }
  return make_sequence(&budget, std::move(items), left.kind);
}

bool can_repeat(Budget& budget, size_t size, uint64_t times) {
  uint64_t total = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(size), times, &total)) total = max_live_bytes + 1;
  return budget.room(total) && budget.spend_bytes(total);
}

/// `value * times`; none if `value` is neither text nor list nor tuple.
std::optional<Value> repeat(Budget& budget, const Value& value, int64_t times) {
  const auto count = static_cast<uint64_t>(times < 0 ? 0 : times);
  if (const Text* text = value.as_text()) {
    std::string result;
    if (!text->bytes.empty() && can_repeat(budget, text->bytes.size(), count)) {
      result.reserve(text->bytes.size() * count);
      for (uint64_t i = 0; i < count; ++i) result += text->bytes;
    }
    return make_text(&budget, std::move(result), text->markup);
  }
  const Sequence* sequence = value.as_sequence();
  if (sequence == nullptr) return std::nullopt;
  if (sequence->kind != Sequence::Kind::list && sequence->kind != Sequence::Kind::tuple) return std::nullopt;
  std::vector<Value> items;
  if (!sequence->items.empty() && can_repeat(budget, sequence->items.size() * sizeof(Value), count)) {
    for (uint64_t i = 0; i < count; ++i)
      items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  }
  return make_sequence(&budget, std::move(items), sequence->kind);
}

std::optional<double> as_double(const Value& value) {
  if (const double* real = value.as_real()) return *real;
  if (auto integer = value.integral()) return static_cast<double>(*integer);
  return std::nullopt;
}

}  // namespace

Result<Value> calculate(Budget& budget, Arithmetic operation, const Value& left, const Value& right) {
  const auto left_integer = left.integral();
  const auto right_integer = right.integral();
  if (left_integer && right_integer) return calculate_integers(operation, *left_integer, *right_integer);
  const auto left_real = as_double(left);
  const auto right_real = as_double(right);
  if (left_real && right_real) return calculate_reals(operation, *left_real, *right_real);

  const Text* text = left.as_text();
  const Sequence* sequence = left.as_sequence();
  if (operation == Arithmetic::add) {
    if (text != nullptr && right.as_text() != nullptr) return join_texts(budget, *text, *right.as_text());
    const Sequence* other = right.as_sequence();
    const bool joinable = sequence != nullptr && other != nullptr && sequence->kind == other->kind &&
                          (sequence->kind == Sequence::Kind::list || sequence->kind == Sequence::Kind::tuple);
    if (joinable) return join_sequences(budget, *sequence, *other);
  } else if (operation == Arithmetic::multiply && (left_integer || right_integer)) {
    if (auto result =
            repeat(budget, left_integer ? right : left, left_integer ? *left_integer : *right_integer)) {
      return *std::move(result);
    }
  } else if (operation == Arithmetic::modulo && text != nullptr) {
    return format_percent(budget, *text, right);
  }
  return wrong_operands(operation, left, right);
}

Result<Value> negate(const Value& value) {
  if (const double* real = value.as_real()) return Value::real(-*real);
  if (value.is_undefined()) return fail(ErrorCode::bad_input, value.reason());
  const auto integer = value.integral();
  if (!integer)
    return fail(ErrorCode::bad_input, fmt::format("'-' does not apply to '{}'", value.type_name()));
  if (*integer == std::numeric_limits<int64_t>::min()) return overflow();
  return Value::integer(-*integer);
}

}  // namespace hexlm::jinja
