#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace hexlm {

/// How far a kernel set may be from the scalar truth of src/kernels/reference/. The differential tests and
/// the documentation read this table.
struct Tolerance {
  std::string_view kernel;
  double bound;  ///< greatest |result − truth| as a multiple of the magnitude; 0 = the same bits
  std::string_view relative_to;  ///< what the magnitude is
};

inline constexpr std::array<Tolerance, 20> kernel_tolerances = {{
    {"dequantize_row", 0, "every set makes the same floats"},
    {"pack", 0, "every set makes the same bytes"},
    {"quantize_rows", 0, "every set makes the same int8 values, scales and sums"},
    {"add", 0, "every set makes the same floats"},
    {"store_half", 0, "every set makes the same halves, NaN payloads aside"},
    {"store_int8", 0, "every set makes the same int8 values and scales"},
    {"float_linear", 4e-7, "the output's sum of |x·w|, plus |bias|"},
    {"int8_linear", 4e-7, "the output's sum of |block result|, plus |bias|; vector sets equal each other"},
    {"rms_norm", 6e-7, "|output|"},
    {"gated_rms_norm", 1.2e-6, "|output|"},
    {"layer_norm", 1e-6, "|normal·weight| + |bias|, where normal is at least 1"},
    {"gelu_tanh", 6e-7, "|x|"},
    {"gelu_erf", 4e-7, "|x|"},
    {"gelu_quick", 6e-7, "|x|"},
    {"rope", 2e-7, "|x_i| + |x_i+R/2|"},
    {"silu_multiply", 6e-7, "|output|"},
    {"sigmoid_multiply", 5e-7, "|output|"},
    {"attention", 4e-6, "the greatest |value| that the query sees"},
    {"causal_convolution", 1e-6, "the output's sum of |input·weight|"},
    {"delta_net", 2e-5, "the greatest |output| or |state| of the head"},
}};

/// The entry of a kernel of KernelSet. The name must be one of the table's; compilation fails otherwise.
consteval double kernel_tolerance(std::string_view kernel) {
  for (const Tolerance& entry : kernel_tolerances) {
    if (entry.kernel == kernel) return entry.bound;
  }
  throw "no tolerance for this kernel";
}

}  // namespace hexlm
