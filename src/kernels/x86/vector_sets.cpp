#include "kernels/vector_sets.hpp"

#include "kernels/x86/x86_kernels.hpp"

namespace hexlm {

namespace {

constexpr KernelSet avx2_set = {
    .name = "avx2",
    .supported = [](const CpuFeatures& features) { return features.avx2; },
    .float_linear = avx2::float_linear,
    .pack = avx2::pack,
    .quantize_rows = avx2::quantize_rows,
    .int8_linear = avx2::int8_linear,
    .dequantize_row = avx2::dequantize_row,
    .rms_norm = avx2::rms_norm,
    .gated_rms_norm = avx2::gated_rms_norm,
    .layer_norm = avx2::layer_norm,
    .gelu_tanh = avx2::gelu_tanh,
    .gelu_erf = avx2::gelu_erf,
    .gelu_quick = avx2::gelu_quick,
    .rope = avx2::rope,
    .add = avx2::add,
    .silu_multiply = avx2::silu_multiply,
    .sigmoid_multiply = avx2::sigmoid_multiply,
    .store_half = avx2::store_half,
    .attention = avx2::attention,
    .causal_convolution = avx2::causal_convolution,
    .delta_net = avx2::delta_net,
};

/// The files of this set are compiled with VNNI throughout, so there is no set for AVX-512 without it: such
/// processors (before Cascade Lake) run the AVX2 set.
constexpr KernelSet avx512_vnni_set = {
    .name = "avx512_vnni",
    .supported =
        [](const CpuFeatures& features) { return features.avx2 && features.avx512 && features.avx512_vnni; },
    .float_linear = avx512::float_linear,
    .pack = avx2::pack,  // bound by memory
    .quantize_rows = avx512::quantize_rows,
    .int8_linear = avx512::int8_linear,
    .dequantize_row = avx512::dequantize_row,
    .rms_norm = avx512::rms_norm,
    .gated_rms_norm = avx512::gated_rms_norm,
    .layer_norm = avx512::layer_norm,
    .gelu_tanh = avx512::gelu_tanh,
    .gelu_erf = avx512::gelu_erf,
    .gelu_quick = avx512::gelu_quick,
    .rope = avx512::rope,
    .add = avx512::add,
    .silu_multiply = avx512::silu_multiply,
    .sigmoid_multiply = avx512::sigmoid_multiply,
    .store_half = avx512::store_half,
    .attention = avx512::attention,
    .causal_convolution = avx512::causal_convolution,
    .delta_net = avx512::delta_net,
};

}  // namespace

std::span<const KernelSet* const> vector_kernel_sets() {
  static constexpr const KernelSet* sets[] = {&avx512_vnni_set, &avx2_set};
  return sets;
}

}  // namespace hexlm
