#include "base/cpu_features.hpp"
#include "quantization/dense.hpp"

namespace hexlm {

extern const DenseKernels dense_kernels_portable;
#if defined(__x86_64__)
extern const DenseKernels dense_kernels_avx2;
extern const DenseKernels dense_kernels_avx512;
#endif

const DenseKernels& dense_kernels() {
#if defined(__x86_64__)
  if (cpu_features().avx512) return dense_kernels_avx512;
  if (cpu_features().avx2) return dense_kernels_avx2;
#endif
  return dense_kernels_portable;
}

}  // namespace hexlm
