#include "base/cpu_features.hpp"

#include "base/processors.hpp"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace hexlm {
namespace {

#if defined(__x86_64__)

constexpr const char* architecture = "x86-64";

CpuFeatures detect() {
  // These built-ins also ask the operating system (XGETBV) whether it saves the wide registers.
  __builtin_cpu_init();
  CpuFeatures features;
  features.avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
  features.avx512_vnni = features.avx512 && __builtin_cpu_supports("avx512vnni");
  return features;
}

#elif defined(__aarch64__)

constexpr const char* architecture = "aarch64";

CpuFeatures detect() {
  // Bits of the kernel's AT_HWCAP and AT_HWCAP2 (Documentation/arch/arm64/elf_hwcaps), named here because
  // older C libraries lack the macros.
  constexpr unsigned long asimd = 1UL << 1;
  constexpr unsigned long asimd_dotprod = 1UL << 20;
  constexpr unsigned long asimd_i8mm = 1UL << 13;
  CpuFeatures features;
  features.neon = (getauxval(AT_HWCAP) & asimd) != 0;
  features.dotprod = (getauxval(AT_HWCAP) & asimd_dotprod) != 0;
  features.i8mm = (getauxval(AT_HWCAP2) & asimd_i8mm) != 0;
  return features;
}

#else

constexpr const char* architecture = "generic";

CpuFeatures detect() { return {}; }

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::string describe(const CpuFeatures& features) {
  std::string text = architecture;
  const auto add = [&](bool present, const char* name) {
    if (present) text.append(" ").append(name);
  };
  add(features.avx2, "avx2");
  add(features.avx512, "avx512");
  add(features.avx512_vnni, "avx512_vnni");
  add(features.neon, "neon");
  add(features.dotprod, "dotprod");
  add(features.i8mm, "i8mm");
  return text;
}

int available_threads() { return static_cast<int>(allowed_processors().size()); }

}  // namespace hexlm
