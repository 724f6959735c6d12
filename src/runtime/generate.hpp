#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/sampler.hpp"
#include "runtime/session.hpp"

namespace hexlm {

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_new_tokens = 512;
  std::vector<std::string> stop;  ///< text that ends the answer and is not part of it
  std::vector<int32_t> eos_tokens;
  bool ignore_eos = false;  ///< for benchmarks and goldens
  /// What the session holds already (earlier turns): counts for the repetition penalty and in prompt_tokens.
  std::vector<int32_t> earlier_tokens;
  /// Receives text as it becomes certain (never half a character, never part of a stop string). Returning
  /// false stops with finish_reason "interrupted".
  std::function<bool(std::string_view piece)> on_text;
  /// Sees the logits that each token is drawn from.
  std::function<void(std::span<const float> logits)> on_logits;
};

struct GenerateResult {
  std::string text;
  std::vector<int32_t> token_ids;  ///< with the EOS token when one ended the answer
  int64_t prompt_tokens = 0;
  std::string finish_reason;  ///< "stop", "length", "interrupted"
  double prefill_s = 0;
  double decode_s = 0;
};

/// Prefill, then decode until EOS, a stop string, max_new_tokens or an interrupt. A prompt longer than the
/// context is an error with the counts; a full context during decode ends with "length".
Result<GenerateResult> generate(Session& session, std::span<const int32_t> prompt,
                                const GenerateOptions& options);
/// As above for a prompt with images.
Result<GenerateResult> generate(Session& session, const Prompt& prompt, const GenerateOptions& options);

}  // namespace hexlm
