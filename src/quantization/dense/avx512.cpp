// Compiled with avx512 enabled (CMakeLists.txt).
#if defined(__x86_64__)
#define HEXLM_DENSE_SET avx512
#include "quantization/dense/body.hpp"
#endif
