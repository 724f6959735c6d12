#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "runtime/model.hpp"

namespace hexlm {

/// Picks the next token from logits. Order as in transformers (spec F.3): penalties on raw logits, temperature,
/// top-k, top-p, min-p, draw. Temperature 0 takes the largest logit, the lowest id on ties.
class Sampler {
 public:
  /// Errors: usage, naming the option, its range and its value. `vocabulary`: ids at or above are never drawn.
  static Result<Sampler> create(const SamplingOptions& options, int64_t vocabulary);

  /// Tokens of the prompt count for the repetition penalty.
  void observe_prompt(std::span<const int32_t> tokens);
  /// Errors: runtime when a logit is NaN or all are −infinity.
  Result<int32_t> sample(std::span<const float> logits);
  void reset();

 private:
  explicit Sampler(const SamplingOptions& options, int64_t vocabulary);
  SamplingOptions options_;
  int64_t vocabulary_;
  uint64_t random_state_[4];
  std::vector<uint32_t> output_counts_;
  std::vector<uint8_t> seen_;
  struct Candidate {
    float value;
    int32_t id;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace hexlm
