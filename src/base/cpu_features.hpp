#pragma once

#include <string>

namespace hexlm {

/// Instruction sets that both the processor and the operating system support, read once.
struct CpuFeatures {
  bool avx2 = false;    ///< with FMA and F16C
  bool avx512 = false;  ///< F, BW, DQ, VL
  bool avx512_vnni = false;
  bool neon = false;
  bool dotprod = false;
  bool i8mm = false;
};

const CpuFeatures& cpu_features();
/// "x86-64 avx2 avx512 avx512_vnni", for reports.
std::string describe(const CpuFeatures& features);
/// Processors this process may run on (its affinity mask).
int available_threads();

}  // namespace hexlm
