#include "kernels/reference/reference.hpp"

namespace hexlm {

const KernelSet& reference_kernels() {
  static constexpr KernelSet set = {
      .name = "scalar",
      .supported = [](const CpuFeatures&) { return true; },
      .float_linear = reference::float_linear,
      .pack = reference::pack,
      .quantize_rows = reference::quantize_rows,
      .int8_linear = reference::int8_linear,
      .dequantize_row = reference::dequantize_row,
      .rms_norm = reference::rms_norm,
      .gated_rms_norm = reference::gated_rms_norm,
      .layer_norm = reference::layer_norm,
      .gelu_tanh = reference::gelu_tanh,
      .gelu_erf = reference::gelu_erf,
      .gelu_quick = reference::gelu_quick,
      .rope = reference::rope,
      .add = reference::add,
      .silu_multiply = reference::silu_multiply,
      .sigmoid_multiply = reference::sigmoid_multiply,
      .store_half = reference::store_half,
      .store_int8 = reference::store_int8,
      .attention = reference::attention,
      .causal_convolution = reference::causal_convolution,
      .delta_net = reference::delta_net,
  };
  return set;
}

}  // namespace hexlm
