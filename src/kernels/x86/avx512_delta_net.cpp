#include "kernels/generic/delta_net.hpp"
#include "kernels/reference/reference.hpp"
#include "kernels/x86/avx512_vector.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx512 {

void causal_convolution(const float* x, int64_t tokens, int64_t channels, const float* weight, int64_t taps,
                        float* history, float* y, int64_t channel_begin, int64_t channel_end) {
  // Every published model has four taps.
  if (taps != 4) {
    return reference::causal_convolution(x, tokens, channels, weight, taps, history, y, channel_begin,
                                         channel_end);
  }
  convolve_four_taps<Vector>(x, tokens, channels, weight, history, y, channel_begin, channel_end);
}

void delta_net(const DeltaNetArguments& arguments) { DeltaNet<Vector>(arguments).run(); }

}  // namespace hexlm::avx512
