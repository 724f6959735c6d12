#include "kernels/vector_sets.hpp"

namespace hexlm {

std::span<const KernelSet* const> vector_kernel_sets() { return {}; }

}  // namespace hexlm
