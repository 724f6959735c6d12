#include "kernels/arm/arm_kernels.hpp"
#include "kernels/arm/neon_vector.hpp"
#include "kernels/generic/float_kernels.hpp"

namespace hexlm::neon {

constinit const KernelSet float_kernels = make_float_kernels<Vector>();

}  // namespace hexlm::neon
