#include "kernels/generic/float_kernels.hpp"
#include "kernels/x86/avx2_vector.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx2 {

constinit const KernelSet float_kernels = make_float_kernels<Vector>();

}  // namespace hexlm::avx2
