#include "evaluation/compare.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "runtime/generate.hpp"

namespace hexlm {
namespace {

/// Logits of one step of both sides are held at a time.
constexpr int64_t compared_logits_bytes = int64_t{64} << 20;

using CompareClock = std::chrono::steady_clock;

class Comparison {
 public:
  Comparison(Session& reference, Session& other, const CompareOptions& options)
      : reference_(reference), other_(other), options_(options), pool_(options.threads) {}

  Status check() const {
    const int64_t a = reference_.model().config().text.vocabulary_size;
    const int64_t b = other_.model().config().text.vocabulary_size;
    if (a != b)
      return fail(ErrorCode::bad_input,
                  fmt::format("the reference has a vocabulary of {}, the other model of {}", a, b),
                  "compare a model with a version of itself");
    const int64_t most = std::min(reference_.capacity(), other_.capacity());
    if (options_.window < 2 || options_.window > most)
      return fail(ErrorCode::usage, fmt::format("the window must be 2 to {} tokens (the context), got {}",
                                                most, options_.window));
    if (!options_.layers) return {};
    return check_same_graph(*reference_.model().graph(), *other_.model().graph());
  }

  Result<CompareResult> run(std::span<const int32_t> tokens, const ProgressCallback& progress) {
    const auto start = CompareClock::now();
    HEXLM_TRY(prepare());
    const auto total = static_cast<int64_t>(tokens.size());
    for (int64_t begin = 0; begin < total; begin += options_.window) {
      const int64_t size = std::min(options_.window, total - begin);
      HEXLM_TRY(compare_window(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(size))));
      if (progress && !progress("tokens", static_cast<uint64_t>(begin + size), static_cast<uint64_t>(total)))
        return fail(ErrorCode::interrupted,
                    fmt::format("interrupted after {} of {} tokens", begin + size, total));
    }
    result_.tokens = total;
    result_.seconds = std::chrono::duration<double>(CompareClock::now() - start).count();
    return std::move(result_);
  }

 private:
  Status prepare() {
    const int64_t vocabulary = reference_.model().config().text.vocabulary_size;
    step_ = std::clamp<int64_t>(compared_logits_bytes / (vocabulary * int64_t{sizeof(float)}), 1,
                                options_.window);
    if (!options_.layers) return {};
    const Precision precision = std::min(reference_.options().precision, other_.options().precision);
    const CacheType cache = std::max(reference_.cache(), other_.cache());
    result_.layers = std::make_unique<LayerComparison>(reference_.model(), other_.model(), precision, cache,
                                                       options_.threads);
    step_ = std::min(step_, result_.layers->tokens_within(options_.layer_bytes));
    HEXLM_ASSIGN(local_state_, other_.create_state());
    return {};
  }

  Status compare_window(std::span<const int32_t> window) {
    reference_.reset();
    other_.reset();
    if (local_state_) local_state_->reset();
    const auto size = static_cast<int64_t>(window.size());
    for (int64_t begin = 0; begin < size; begin += step_) {
      const int64_t count = std::min(step_, size - begin);
      const auto step = window.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
      std::vector<int64_t> targets(static_cast<size_t>(count), -1);
      for (int64_t i = 0; i < count && begin + i + 1 < size; ++i)
        targets[static_cast<size_t>(i)] = window[static_cast<size_t>(begin + i + 1)];
      HEXLM_TRY(compare_step(step, targets));
    }
    return {};
  }

  Status compare_step(std::span<const int32_t> tokens, std::span<const int64_t> targets) {
    LayerComparison* layers = result_.layers.get();
    HEXLM_TRY(forward(reference_, tokens, layers != nullptr ? &layers->record() : nullptr, reference_logits_,
                      result_.reference_forward_s));
    HEXLM_TRY(forward(other_, tokens, layers != nullptr ? &layers->compare_global() : nullptr, logits_,
                      result_.forward_s));
    result_.outputs.add(reference_logits_, logits_, targets, pool_);
    if (layers == nullptr) return {};
    other_.swap_state(local_state_);
    double unused = 0;
    const Status status = forward(other_, tokens, &layers->compare_local(), logits_, unused);
    other_.swap_state(local_state_);
    return status;
  }

  static Status forward(Session& session, std::span<const int32_t> tokens, Observer* observer,
                        std::vector<float>& logits, double& seconds) {
    const auto start = CompareClock::now();
    logits.clear();
    const auto keep = [&logits](int64_t, int64_t, std::span<const float> rows) -> Status {
      logits.insert(logits.end(), rows.begin(), rows.end());
      return {};
    };
    Status status = session.forward(tokens, static_cast<int64_t>(tokens.size()), keep, observer);
    seconds += std::chrono::duration<double>(CompareClock::now() - start).count();
    return status;
  }

  Session& reference_;
  Session& other_;
  CompareOptions options_;
  ThreadPool pool_;
  CompareResult result_;
  int64_t step_ = 1;
  std::unique_ptr<StateSet> local_state_;
  std::vector<float> reference_logits_;
  std::vector<float> logits_;
};

Result<std::vector<int32_t>> greedy(Session& session, std::span<const int32_t> prompt, int64_t count) {
  session.reset();
  GenerateOptions options;
  options.max_new_tokens = count;
  options.eos_tokens = session.model().generation().eos_tokens;
  HEXLM_ASSIGN(const GenerateResult result, generate(session, prompt, options));
  session.reset();
  if (result.finish_reason == "interrupted") return fail(ErrorCode::interrupted, "interrupted");
  return result.token_ids;
}

Result<Parting> find_parting(Session& reference, Session& other, std::span<const int32_t> prompt,
                             int64_t count) {
  HEXLM_ASSIGN(const std::vector<int32_t> a, greedy(reference, prompt, count));
  HEXLM_ASSIGN(const std::vector<int32_t> b, greedy(other, prompt, count));
  Parting parting;
  parting.compared = static_cast<int64_t>(a.size());
  const size_t shared =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  if (shared == a.size() && shared == b.size()) return parting;
  parting.position = static_cast<int64_t>(shared);
  if (shared < a.size()) parting.reference_token = a[shared];
  if (shared < b.size()) parting.token = b[shared];
  return parting;
}

}  // namespace

Result<CompareResult> compare(Session& reference, Session& other, std::span<const int32_t> tokens,
                              const CompareOptions& options, const ProgressCallback& progress) {
  if (tokens.empty()) return fail(ErrorCode::bad_input, "there are no tokens to compare on");
  Comparison comparison(reference, other, options);
  HEXLM_TRY(comparison.check());
  HEXLM_ASSIGN(CompareResult result, comparison.run(tokens, progress));
  const auto prompt = static_cast<size_t>(std::min<int64_t>(
      {options.greedy_prompt, static_cast<int64_t>(tokens.size()), reference.capacity(), other.capacity()}));
  // After numbers that are none there is nothing to draw.
  if (options.greedy_tokens > 0 && prompt > 0 && result.outputs.finite()) {
    HEXLM_ASSIGN(result.parting, find_parting(reference, other, tokens.first(prompt), options.greedy_tokens));
  }
  return result;
}

}  // namespace hexlm
