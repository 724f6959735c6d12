#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <limits>

#include "tokenizer/jinja/arguments.hpp"
#include "tokenizer/jinja/filters.hpp"
#include "tokenizer/jinja/literal.hpp"
#include "tokenizer/jinja/operators.hpp"

namespace hexlm::jinja {
namespace {

tl::unexpected<Error> not_a_number(std::string_view filter, const Value& input) {
  if (input.is_undefined()) return fail(ErrorCode::bad_input, input.reason());
  return fail(ErrorCode::bad_input, fmt::format("{} expects a number, not '{}'", filter, input.type_name()));
}

Result<Value> truncate(double value) {
  // 2^63 is the first double beyond int64.
  if (!(std::abs(value) < 9223372036854775808.0)) {
    return fail(ErrorCode::limit, "an integer result exceeds 64 bits");
  }
  return Value::integer(static_cast<int64_t>(value));
}

Result<Value> to_integer(Interpreter&, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("int", arguments, {"default", "base"}));
  HEXLM_ASSIGN(const int64_t base, bound.integer(1, 10));
  if (base != 0 && (base < 2 || base > 36))
    return fail(ErrorCode::bad_input, "int expects a base of 2 to 36, or 0");
  Value otherwise = bound[0] == nullptr ? Value::integer(0) : *bound[0];
  if (input.is_undefined()) return not_a_number("int", input);
  if (input.as_large() != nullptr) return input;
  if (const auto integer = input.integral()) return Value::integer(*integer);
  if (const double* real = input.as_real()) return std::isnan(*real) ? otherwise : truncate(*real);
  const Text* text = input.as_text();
  if (text == nullptr) return otherwise;
  int64_t integer = 0;
  if (parse_python_integer(text->bytes, static_cast<int>(base), integer)) return Value::integer(integer);
  double real = 0;
  if (!parse_python_real(text->bytes, real) || std::isnan(real)) return otherwise;
  return truncate(real);
}

Result<Value> to_real(Interpreter&, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("float", arguments, {"default"}));
  if (input.is_undefined()) return not_a_number("float", input);
  if (input.as_real() != nullptr) return input;
  if (const auto integer = input.integral()) return Value::real(static_cast<double>(*integer));
  if (const uint64_t* large = input.as_large()) return Value::real(static_cast<double>(*large));
  double real = 0;
  const Text* text = input.as_text();
  if (text != nullptr && parse_python_real(text->bytes, real)) return Value::real(real);
  return bound[0] == nullptr ? Value::real(0) : *bound[0];
}

Result<Value> absolute(Interpreter&, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("abs", arguments, {}));
  if (const double* real = input.as_real()) return Value::real(std::abs(*real));
  if (input.as_large() != nullptr) return input;
  const auto integer = input.integral();
  if (!integer) return not_a_number("abs", input);
  return *integer < 0 ? negate(input) : Value::integer(*integer);
}

/// Python's round: half to even of the exact value, which printf gives for decimals.
double round_real(double value, int64_t precision) {
  // Doubles have at most 1074 decimals and 309 digits before the point.
  if (!std::isfinite(value) || precision > 1100) return value;
  if (precision < -310) return std::copysign(0.0, value);
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / scale) * scale;
  }
  std::string text(static_cast<size_t>(precision) + 400, '\0');
  std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(precision), value);
  return std::strtod(text.c_str(), nullptr);
}

Result<Value> round_integer(int64_t value, int64_t precision) {
  if (precision >= 0) return Value::integer(value);
  // 10^19 exceeds every 64-bit integer.
  if (precision < -18) return Value::integer(0);
  int64_t scale = 1;
  for (int64_t i = 0; i < -precision; ++i) scale *= 10;
  const int64_t remainder = ((value % scale) + scale) % scale;
  int64_t result = 0;
  if (__builtin_sub_overflow(value, remainder, &result))
    return fail(ErrorCode::limit, "an integer result exceeds 64 bits");
  const bool odd = (result / scale) % 2 != 0;
  const bool up = remainder > scale - remainder || (remainder == scale - remainder && odd);
  if (up && __builtin_add_overflow(result, scale, &result)) {
    return fail(ErrorCode::limit, "an integer result exceeds 64 bits");
  }
  return Value::integer(result);
}

Result<Value> round(Interpreter&, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("round", arguments, {"precision", "method"}));
  HEXLM_ASSIGN(const int64_t precision, bound.integer(0, 0));
  HEXLM_ASSIGN(const Text* method, bound.text(1));
  const auto integer = input.integral();
  const double* real = input.as_real();
  if (!integer && real == nullptr) return not_a_number("round", input);
  if (method == nullptr || method->bytes == "common") {
    return integer ? round_integer(*integer, precision) : Value::real(round_real(*real, precision));
  }
  if (method->bytes != "ceil" && method->bytes != "floor") {
    return fail(ErrorCode::bad_input, "round expects the method 'common', 'ceil' or 'floor'");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = (integer ? static_cast<double>(*integer) : *real) * scale;
  return Value::real((method->bytes == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr std::array filters = {
    Filter{"abs", absolute},
    Filter{"float", to_real},
    Filter{"int", to_integer},
    Filter{"round", round},
};

}  // namespace

std::span<const Filter> number_filters() { return filters; }

}  // namespace hexlm::jinja
