// Compiled with avx2 enabled (CMakeLists.txt).
#if defined(__x86_64__)
#define HEXLM_DENSE_SET avx2
#include "quantization/dense/body.hpp"
#endif
