#include "kernels/arm/arm_kernels.hpp"
#include "kernels/arm/neon_vector.hpp"
#include "kernels/generic/float_kernels.hpp"

namespace hexlm::neon {

void set_float_kernels(KernelSet& set) { hexlm::set_float_kernels<Vector>(set); }

}  // namespace hexlm::neon
