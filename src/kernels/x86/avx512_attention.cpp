#include "kernels/generic/attention.hpp"
#include "kernels/x86/avx512_vector.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx512 {

void attention(const AttentionArguments& arguments) {
  if (arguments.half_cache) return attend<Vector, true>(arguments);
  attend<Vector, false>(arguments);
}

}  // namespace hexlm::avx512
