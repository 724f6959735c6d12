#pragma once

#include <string_view>

#include "base/error.hpp"

namespace hexlm {

/// How codes and scales are chosen (docs/quantization.md, "Methods").
enum class Method : uint8_t {
  rtn,   ///< round to nearest
  mse,   ///< search of the scale with the least squared error
  hqq,   ///< half-quadratic splitting, p-norm 0.7 (spec D.3)
  awq,   ///< activation-aware scaling and clipping (spec D.4)
  gptq,  ///< error feedback through the inputs' Hessian (spec D.5)
  best,  ///< gptq with drift correction and coordinate descent
};
std::string_view to_string(Method method);
/// Errors: usage, with the nearest name.
Result<Method> parse_method(std::string_view text);
/// True for methods that look at activations.
bool needs_calibration(Method method);

}  // namespace hexlm
