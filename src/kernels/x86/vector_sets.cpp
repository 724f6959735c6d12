#include "kernels/vector_sets.hpp"

#include "kernels/x86/x86_kernels.hpp"

namespace hexlm {

namespace {

KernelSet avx2_set() {
  KernelSet set = avx2::float_kernels;
  set.name = "avx2";
  set.supported = [](const CpuFeatures& features) { return features.avx2; };
  set.pack = avx2::pack;
  set.quantize_rows = avx2::quantize_rows;
  set.int8_linear = avx2::int8_linear;
  return set;
}

/// The files of this set are compiled with VNNI throughout, so there is no set for AVX-512 without it: such
/// processors (before Cascade Lake) run the AVX2 set.
KernelSet avx512_vnni_set() {
  KernelSet set = avx512::float_kernels;
  set.name = "avx512_vnni";
  set.supported = [](const CpuFeatures& features) {
    return features.avx2 && features.avx512 && features.avx512_vnni;
  };
  set.pack = avx2::pack;  // bound by memory
  set.quantize_rows = avx512::quantize_rows;
  set.int8_linear = avx512::int8_linear;
  return set;
}

}  // namespace

std::span<const KernelSet* const> vector_kernel_sets() {
  static const KernelSet avx512_vnni = avx512_vnni_set();
  static const KernelSet avx2 = avx2_set();
  static const KernelSet* const sets[] = {&avx512_vnni, &avx2};
  return sets;
}

}  // namespace hexlm
