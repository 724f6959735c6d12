#include "kernels/generic/attention.hpp"
#include "kernels/x86/avx2_vector.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx2 {

void attention(const AttentionArguments& arguments) {
  if (arguments.half_cache) return attend<Vector, true>(arguments);
  attend<Vector, false>(arguments);
}

}  // namespace hexlm::avx2
