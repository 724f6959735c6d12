#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "runtime/model.hpp"

namespace hexlm {

/// Picks the next token from logits. Order as in transformers (spec F.3): penalties on raw logits,
/// temperature, top-k, top-p, min-p, draw. Temperature 0 takes the largest logit, the lowest id on ties.
/// Top-k keeps every token as probable as the k-th, as transformers does. The generator is xoshiro256**
/// seeded through splitmix64: the same seed draws the same tokens on every platform.
class Sampler {
 public:
  /// Errors: usage, naming the option, its range and its value. `vocabulary`: ids at or above are never
  /// drawn.
  static Result<Sampler> create(const SamplingOptions& options, int64_t vocabulary);

  /// Tokens of the prompt count for the repetition penalty.
  void observe_prompt(std::span<const int32_t> tokens);
  /// Errors: runtime when a logit is NaN or all are −infinity.
  Result<int32_t> sample(std::span<const float> logits);
  /// Forgets prompt and output and starts the random sequence over.
  void reset();

 private:
  struct Candidate {
    float value;  ///< logit; when drawing, relative to the best and divided by the temperature
    int32_t id;
  };
  Sampler(const SamplingOptions& options, int64_t vocabulary);
  float penalized(float logit, size_t id) const;
  /// The penalized logit. Errors: runtime when it is NaN or +infinity.
  Result<float> checked(std::span<const float> logits, size_t id) const;
  Result<int32_t> best(std::span<const float> logits) const;
  Result<int32_t> pick(std::span<const float> logits);
  Status collect(std::span<const float> logits);
  void keep_top_k();
  void keep_top_p();
  int32_t draw();
  static bool before(const Candidate& a, const Candidate& b);
  static double weight(const Candidate& candidate);

  SamplingOptions options_;
  int64_t vocabulary_;
  uint64_t random_state_[4];
  std::vector<uint32_t> output_counts_;
  std::vector<uint8_t> seen_;
  std::vector<Candidate> candidates_;
};

}  // namespace hexlm
