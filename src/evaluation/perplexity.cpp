#include "evaluation/perplexity.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>

namespace hexlm {
namespace {

/// Tokens begin … end−1 run on an empty cache; those from score_from on count.
struct ScoredWindow {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t score_from = 0;
};

std::vector<ScoredWindow> windows_of(int64_t tokens, const PerplexityOptions& options) {
  std::vector<ScoredWindow> windows;
  const int64_t stride = options.stride == 0 ? options.window : options.stride;
  int64_t scored = 0;  // one past the last token that an earlier window had
  for (int64_t begin = 0; begin < tokens; begin += stride) {
    ScoredWindow window{begin, std::min(begin + options.window, tokens), 0};
    if (options.protocol == PerplexityProtocol::second_half) {
      if (begin + options.window > tokens) break;
      window.score_from = begin + options.window / 2 + 1;
    } else {
      window.score_from = std::max(begin + 1, scored);
    }
    windows.push_back(window);
    scored = window.end;
    if (scored == tokens) break;
  }
  return windows;
}

class PerplexityRun {
 public:
  PerplexityRun(Session& session, std::span<const int32_t> tokens, const PerplexityOptions& options)
      : session_(session), tokens_(tokens), options_(options) {}

  Status score(const ScoredWindow& window) {
    const int64_t wanted = window.end - window.score_from;
    if (wanted <= 0) return {};
    session_.reset();
    // The last token predicts nothing in its window, so it need not run.
    const auto inputs = tokens_.subspan(static_cast<size_t>(window.begin),
                                        static_cast<size_t>(window.end - 1 - window.begin));
    const auto vocabulary = static_cast<size_t>(session_.model().config().text.vocabulary_size);
    return session_.forward(
        inputs, wanted, [&](int64_t first, int64_t rows, std::span<const float> logits) -> Status {
          for (int64_t row = 0; row < rows; ++row) {
            HEXLM_TRY(add(window.begin + first + row + 1,
                          logits.subspan(static_cast<size_t>(row) * vocabulary, vocabulary)));
          }
          return {};
        });
  }

  double sum() const { return sum_; }
  int64_t scored() const { return scored_; }

 private:
  Status add(int64_t index, std::span<const float> logits) {
    const int32_t target = tokens_[static_cast<size_t>(index)];
    const double nll = negative_log_likelihood(logits, target);
    if (!std::isfinite(nll))
      return fail(ErrorCode::runtime, fmt::format("the likelihood of token {} is not finite", target));
    sum_ += nll;
    ++scored_;
    if (options_.on_token) options_.on_token(index, nll);
    return {};
  }

  Session& session_;
  std::span<const int32_t> tokens_;
  const PerplexityOptions& options_;
  double sum_ = 0;
  int64_t scored_ = 0;
};

Status check_windows(const Session& session, const PerplexityOptions& options) {
  if (options.window < 2 || options.window > session.capacity()) {
    return fail(ErrorCode::usage, fmt::format("the window must be 2 to {} tokens (the context), got {}",
                                              session.capacity(), options.window));
  }
  if (options.stride < 0 || options.stride > options.window) {
    return fail(ErrorCode::usage, fmt::format("the stride must be 1 to {} tokens (the window), got {}",
                                              options.window, options.stride));
  }
  if (options.stride != 0 && options.protocol == PerplexityProtocol::second_half)
    return fail(ErrorCode::usage, "the second-half protocol has no stride: its windows don't overlap");
  return {};
}

}  // namespace

double negative_log_likelihood(std::span<const float> logits, int32_t target) {
  const double maximum = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - maximum);
  return std::log(sum) + maximum - static_cast<double>(logits[static_cast<size_t>(target)]);
}

Result<PerplexityResult> perplexity(Session& session, std::span<const int32_t> tokens,
                                    const PerplexityOptions& options, const ProgressCallback& progress) {
  HEXLM_TRY(check_windows(session, options));
  const auto start = std::chrono::steady_clock::now();
  PerplexityResult result;
  result.tokens = static_cast<int64_t>(tokens.size());
  PerplexityRun run(session, tokens, options);
  for (const ScoredWindow& window : windows_of(result.tokens, options)) {
    HEXLM_TRY(run.score(window));
    if (progress &&
        !progress("tokens", static_cast<uint64_t>(window.end), static_cast<uint64_t>(result.tokens))) {
      return fail(ErrorCode::interrupted,
                  fmt::format("interrupted after {} of {} tokens", window.end, result.tokens));
    }
  }
  result.scored = run.scored();
  result.nll_sum = run.sum();
  if (result.scored == 0) {
    const bool halves = options.protocol == PerplexityProtocol::second_half;
    return fail(ErrorCode::bad_input,
                fmt::format("the text has {} tokens, at least {} are needed to score one", result.tokens,
                            halves ? options.window : 2));
  }
  result.nll_mean = result.nll_sum / static_cast<double>(result.scored);
  result.perplexity = std::exp(result.nll_mean);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Result<PerplexityResult> perplexity(Session& session, std::span<const int32_t> tokens, int64_t window,
                                    const ProgressCallback& progress) {
  PerplexityOptions options;
  options.window = window;
  return perplexity(session, tokens, options, progress);
}

}  // namespace hexlm
