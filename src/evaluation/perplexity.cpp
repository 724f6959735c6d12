#include "evaluation/perplexity.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>

namespace hexlm {
namespace {

/// Adds the negative log likelihoods of one window's tokens but the first.
Status score_window(Session& session, std::span<const int32_t> window, double& sum) {
  session.reset();
  // The last token predicts nothing in its window, so it need not run.
  const std::span<const int32_t> inputs = window.first(window.size() - 1);
  const auto count = static_cast<int64_t>(inputs.size());
  const auto vocabulary = static_cast<size_t>(session.model().config().text.vocabulary_size);
  return session.forward(
      inputs, count, [&](int64_t first, int64_t rows, std::span<const float> logits) -> Status {
        for (int64_t row = 0; row < rows; ++row) {
          const int32_t target = window[static_cast<size_t>(first + row + 1)];
          const double nll = negative_log_likelihood(
              logits.subspan(static_cast<size_t>(row) * vocabulary, vocabulary), target);
          if (!std::isfinite(nll)) {
            return fail(ErrorCode::runtime, fmt::format("the likelihood of token {} is not finite", target));
          }
          sum += nll;
        }
        return {};
      });
}

}  // namespace

double negative_log_likelihood(std::span<const float> logits, int32_t target) {
  const double maximum = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - maximum);
  return std::log(sum) + maximum - static_cast<double>(logits[static_cast<size_t>(target)]);
}

Result<PerplexityResult> perplexity(Session& session, std::span<const int32_t> tokens, int64_t window,
                                    const ProgressCallback& progress) {
  if (window < 2 || window > session.capacity()) {
    return fail(ErrorCode::usage, fmt::format("the window must be 2 to {} tokens (the context), got {}",
                                              session.capacity(), window));
  }
  const auto start = std::chrono::steady_clock::now();
  PerplexityResult result;
  result.tokens = static_cast<int64_t>(tokens.size());
  double sum = 0;
  const auto total = static_cast<uint64_t>(result.tokens);
  for (int64_t begin = 0; begin < result.tokens; begin += window) {
    const int64_t size = std::min(window, result.tokens - begin);
    if (size >= 2) {
      HEXLM_TRY(
          score_window(session, tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(size)), sum));
      result.scored += size - 1;
    }
    if (progress && !progress("tokens", static_cast<uint64_t>(begin + size), total)) {
      return fail(ErrorCode::interrupted,
                  fmt::format("interrupted after {} of {} tokens", begin + size, total));
    }
  }
  if (result.scored == 0) {
    return fail(ErrorCode::bad_input,
                fmt::format("the text has {} tokens, at least 2 are needed to score one", result.tokens));
  }
  result.nll_mean = sum / static_cast<double>(result.scored);
  result.perplexity = std::exp(result.nll_mean);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace hexlm
