#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "runtime/session.hpp"

namespace hexlm {

/// Which tokens of a text count (docs/evaluation.md has the formulas).
enum class PerplexityProtocol : uint8_t {
  windows,      ///< every token of every window but its first
  second_half,  ///< llama.cpp's: of complete windows, the tokens after the middle one
};

struct PerplexityOptions {
  int64_t window = 512;
  /// Tokens from one window to the next; 0 for the window itself (no overlap). With overlap, a window scores
  /// only what the one before did not have, so that every scored token but those of the first window has at
  /// least window − stride tokens before it.
  int64_t stride = 0;
  PerplexityProtocol protocol = PerplexityProtocol::windows;
  /// Receives every scored token: its index in the text and its negative log likelihood in nats.
  std::function<void(int64_t index, double nll)> on_token;
};

struct PerplexityResult {
  double perplexity = 0;  ///< exp(mean negative log likelihood)
  double nll_mean = 0;    ///< nats
  double nll_sum = 0;
  int64_t tokens = 0;
  int64_t scored = 0;
  double seconds = 0;
};

/// −log softmax(logits)[target], in double precision.
double negative_log_likelihood(std::span<const float> logits, int32_t target);

/// Nothing is added to the tokens. A last window of one token scores nothing. Errors: usage for a window
/// below 2 or above the context, a stride outside 1 … window, or both a stride and the second half; bad_input
/// when nothing can be scored.
Result<PerplexityResult> perplexity(Session& session, std::span<const int32_t> tokens,
                                    const PerplexityOptions& options, const ProgressCallback& progress);
/// Consecutive windows, no overlap (docs/cli.md, `perplexity`).
Result<PerplexityResult> perplexity(Session& session, std::span<const int32_t> tokens, int64_t window,
                                    const ProgressCallback& progress);

}  // namespace hexlm
