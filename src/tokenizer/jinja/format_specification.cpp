#include "tokenizer/jinja/format_specification.hpp"

#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <limits>

#include "tokenizer/jinja/represent.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

// More digits than any double has; bounds the work of printf.
constexpr int64_t max_precision = 1000;

std::string sign_of(bool negative, const FormatSpecification& specification) {
  if (negative) return "-";
  return specification.sign == 0 ? "" : std::string(1, specification.sign);
}

std::string pad(Budget& budget, const std::string& sign, const std::string& body,
                const FormatSpecification& specification, char default_align) {
  const auto length = static_cast<int64_t>(count_code_points(body) + sign.size());
  const int64_t missing = specification.width - length;
  if (missing <= 0 || !budget.room(static_cast<uint64_t>(missing) * specification.fill.size()))
    return sign + body;
  const auto fill = [&](int64_t count) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += specification.fill;
    return text;
  };
  switch (specification.align == 0 ? default_align : specification.align) {
    case '<':
      return sign + body + fill(missing);
    case '^':
      return fill(missing / 2) + sign + body + fill(missing - missing / 2);
    case '=':
      return sign + fill(missing) + body;
    default:
      return fill(missing) + sign + body;
  }
}

std::string digits_of(uint64_t magnitude, const FormatSpecification& specification) {
  const std::string prefix = specification.alternate ? fmt::format("0{}", specification.type) : "";
  switch (specification.type) {
    case 'x':
      return prefix + fmt::format("{:x}", magnitude);
    case 'X':
      return prefix + fmt::format("{:X}", magnitude);
    case 'o':
      return prefix + fmt::format("{:o}", magnitude);
    case 'b':
      return prefix + fmt::format("{:b}", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string print_real(double magnitude, const FormatSpecification& specification) {
  if (specification.type == 0 && specification.precision < 0) return represent_real(magnitude);
  const char type = specification.type == 0 ? 'g' : specification.type == '%' ? 'f' : specification.type;
  const char pattern[] = {'%', '.', '*', type, 0};
  const int precision = specification.precision < 0 ? 6 : static_cast<int>(specification.precision);
  std::string text(static_cast<size_t>(precision) + 400, '\0');
  // 400 bytes hold the 309 digits before the point of the largest double, sign and exponent.
  const int size = std::snprintf(text.data(), text.size(), pattern, precision, magnitude);
  text.resize(static_cast<size_t>(std::max(size, 0)));
  return text;
}

Result<std::string> format_real(Budget& budget, double value, const FormatSpecification& specification) {
  if (specification.precision > max_precision) {
    return fail(ErrorCode::limit,
                fmt::format("a precision of {} is above {}", specification.precision, max_precision));
  }
  const bool percent = specification.type == '%';
  std::string body = print_real(std::abs(percent ? value * 100 : value), specification);
  if (percent) body += '%';
  return pad(budget, sign_of(std::signbit(value) && !std::isnan(value), specification), body, specification,
             '>');
}

tl::unexpected<Error> wrong_type(const Value& value, char type) {
  if (value.is_undefined()) return fail(ErrorCode::bad_input, value.reason());
  return fail(ErrorCode::bad_input, fmt::format("'{}' cannot be formatted as '{}'", value.type_name(), type));
}

Result<std::string> format_integer(Budget& budget, const Value& value,
                                   const FormatSpecification& specification) {
  int64_t number = value.integral().value_or(0);
  if (const double* real = value.as_real()) {
    // 2^63 is the first double beyond int64.
    if (!(std::abs(*real) < 9223372036854775808.0)) return wrong_type(value, specification.type);
    number = static_cast<int64_t>(*real);
  } else if (!value.integral()) {
    return wrong_type(value, specification.type);
  }
  const uint64_t magnitude = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  std::string digits = digits_of(magnitude, specification);
  if (specification.precision > max_precision) return wrong_type(value, specification.type);
  if (static_cast<int64_t>(digits.size()) < specification.precision) {
    digits.insert(0, static_cast<size_t>(specification.precision) - digits.size(), '0');
  }
  return pad(budget, sign_of(number < 0, specification), digits, specification, '>');
}

Result<std::string> format_text(Budget& budget, std::string text, const FormatSpecification& specification) {
  if (specification.precision >= 0) {
    text.resize(byte_offset(text, static_cast<size_t>(specification.precision)));
  }
  return pad(budget, "", text, specification, '<');
}

}  // namespace

Result<std::string> format_value(Budget& budget, const Value& value,
                                 const FormatSpecification& specification) {
  const bool number = value.integral().has_value() || value.as_real() != nullptr;
  switch (specification.type) {
    case 's':
      return format_text(budget, to_text(budget, value), specification);
    case 'r':
      return format_text(budget, represent(budget, value), specification);
    case 0:
      if (value.as_real() != nullptr) return format_real(budget, *value.as_real(), specification);
      if (value.as_integer() != nullptr) return format_integer(budget, value, specification);
      return format_text(budget, to_text(budget, value), specification);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'b':
      return format_integer(budget, value, specification);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case '%': {
      if (!number) return wrong_type(value, specification.type);
      const double real =
          value.as_real() != nullptr ? *value.as_real() : static_cast<double>(*value.integral());
      return format_real(budget, real, specification);
    }
    default:
      return fail(ErrorCode::bad_input, fmt::format("there is no conversion '{}'", specification.type));
  }
}

Result<int64_t> read_number(std::string_view text, size_t& position) {
  int64_t number = 0;
  const size_t begin = position;
  for (; position < text.size() && text[position] >= '0' && text[position] <= '9'; ++position) {
    if (position - begin >= 9) return fail(ErrorCode::limit, "a number in a format has more than 9 digits");
    number = number * 10 + (text[position] - '0');
  }
  return number;
}

}  // namespace hexlm::jinja
