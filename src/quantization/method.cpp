#include "quantization/method.hpp"

#include <array>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "base/text.hpp"

namespace hexlm {
namespace {

constexpr std::array<std::string_view, 6> method_names = {"rtn", "mse", "hqq", "awq", "gptq", "best"};

}  // namespace

std::string_view to_string(Method method) { return method_names[static_cast<size_t>(method)]; }

Result<Method> parse_method(std::string_view text) {
  std::vector<std::string> names;
  for (size_t i = 0; i < method_names.size(); ++i) {
    if (method_names[i] == text) return static_cast<Method>(i);
    names.emplace_back(method_names[i]);
  }
  return fail(ErrorCode::usage,
              fmt::format("--method: '{}' is none of {}", text, fmt::join(method_names, ", ")),
              fmt::format("the nearest is {}", nearest(text, names)));
}

bool needs_calibration(Method method) { return method >= Method::awq; }

}  // namespace hexlm
