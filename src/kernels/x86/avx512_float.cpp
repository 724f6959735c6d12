#include "kernels/generic/float_kernels.hpp"
#include "kernels/x86/avx512_vector.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx512 {

constinit const KernelSet float_kernels = make_float_kernels<Vector>();

}  // namespace hexlm::avx512
