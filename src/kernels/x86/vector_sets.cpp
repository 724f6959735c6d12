#include "kernels/vector_sets.hpp"

#include "kernels/reference/reference.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm {

namespace {

constexpr KernelSet avx2_set = {
    .name = "avx2",
    .supported = [](const CpuFeatures& features) { return features.avx2; },
    .float_linear = reference::float_linear,
    .pack = avx2::pack,
    .quantize_rows = avx2::quantize_rows,
    .int8_linear = avx2::int8_linear,
    .dequantize_row = reference::dequantize_row,
    .rms_norm = reference::rms_norm,
    .gated_rms_norm = reference::gated_rms_norm,
    .rope = reference::rope,
    .add = reference::add,
    .silu_multiply = reference::silu_multiply,
    .sigmoid_multiply = reference::sigmoid_multiply,
    .store_half = reference::store_half,
    .attention = reference::attention,
    .causal_convolution = reference::causal_convolution,
    .delta_net = reference::delta_net,
};

/// The files of this set are compiled with VNNI throughout, so there is no set for AVX-512 without it: such
/// processors (before Cascade Lake) run the AVX2 set.
constexpr KernelSet avx512_vnni_set = {
    .name = "avx512_vnni",
    .supported =
        [](const CpuFeatures& features) { return features.avx2 && features.avx512 && features.avx512_vnni; },
    .float_linear = reference::float_linear,
    .pack = avx2::pack,  // bound by memory
    .quantize_rows = avx512::quantize_rows,
    .int8_linear = avx512::int8_linear,
    .dequantize_row = reference::dequantize_row,
    .rms_norm = reference::rms_norm,
    .gated_rms_norm = reference::gated_rms_norm,
    .rope = reference::rope,
    .add = reference::add,
    .silu_multiply = reference::silu_multiply,
    .sigmoid_multiply = reference::sigmoid_multiply,
    .store_half = reference::store_half,
    .attention = reference::attention,
    .causal_convolution = reference::causal_convolution,
    .delta_net = reference::delta_net,
};

}  // namespace

std::span<const KernelSet* const> vector_kernel_sets() {
  static constexpr const KernelSet* sets[] = {&avx512_vnni_set, &avx2_set};
  return sets;
}

}  // namespace hexlm
