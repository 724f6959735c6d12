#include "kernels/vector_sets.hpp"

#include "kernels/arm/arm_kernels.hpp"
#include "kernels/reference/reference.hpp"

namespace hexlm {

namespace {

KernelSet make_set(const char* name, bool (*supported)(const CpuFeatures&),
                   void (*int8_linear)(const Int8LinearArguments&)) {
  KernelSet set = neon::float_kernels;
  set.name = name;
  set.supported = supported;
  set.pack = reference::pack;
  set.quantize_rows = neon::quantize_rows;
  set.int8_linear = int8_linear;
  return set;
}

}  // namespace

std::span<const KernelSet* const> vector_kernel_sets() {
  static const KernelSet i8mm_set = make_set(
      "i8mm", [](const CpuFeatures& features) { return features.neon && features.dotprod && features.i8mm; },
      i8mm::int8_linear);
  static const KernelSet dotprod_set = make_set(
      "dotprod", [](const CpuFeatures& features) { return features.neon && features.dotprod; },
      dotprod::int8_linear);
  static const KernelSet neon_set =
      make_set("neon", [](const CpuFeatures& features) { return features.neon; }, neon::int8_linear);
  static const KernelSet* const sets[] = {&i8mm_set, &dotprod_set, &neon_set};
  return sets;
}

}  // namespace hexlm
