#define HEXLM_DENSE_SET portable
#include "quantization/dense/body.hpp"
