#pragma once

#include <vector>

#include "backends/cpu/step.hpp"
#include "graph/low_rank.hpp"

namespace hexlm {

/// The low-rank update of one linear node, or none; set between runs. Buffers are allocated when it is set.
class LowRankSlot {
 public:
  /// For steps of up to `rows` rows on `threads` threads.
  void set(LowRankUpdate update, int64_t rows, int threads);
  void clear() { update_ = {}; }
  bool is_set() const { return update_.rank > 0; }

  /// Turns y = x Wᵀ + bias [rows, outputs] into gain · (x Wᵀ + update) + bias.
  void apply(const RunContext& context, const float* x, const float* bias, float* y, int64_t rows);

 private:
  LowRankUpdate update_;
  std::vector<float> hidden_;   ///< x · downᵀ [rows, rank]
  std::vector<float> scratch_;  ///< of the float kernel, per worker
  int64_t scratch_stride_ = 0;
};

}  // namespace hexlm
