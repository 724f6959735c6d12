#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "runtime/session.hpp"

namespace hexlm {

struct PerplexityResult {
  double perplexity = 0;  ///< exp(mean negative log likelihood)
  double nll_mean = 0;    ///< nats
  int64_t tokens = 0;
  int64_t scored = 0;
  double seconds = 0;
};

/// −log softmax(logits)[target], in double precision.
double negative_log_likelihood(std::span<const float> logits, int32_t target);

/// Consecutive windows of `window` tokens, no overlap, nothing added, each window's first token unscored; a
/// last window of one token scores nothing (docs/cli.md, `perplexity`). Errors: usage for a window below 2 or
/// above the context.
Result<PerplexityResult> perplexity(Session& session, std::span<const int32_t> tokens, int64_t window,
                                    const ProgressCallback& progress);

}  // namespace hexlm
