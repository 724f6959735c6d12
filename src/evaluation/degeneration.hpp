#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/generate.hpp"

namespace hexlm {

/// Signs that a model, its weights or a backend is broken, in whatever text it writes.
enum class Degeneration : uint8_t {
  none,
  non_finite_logits,       ///< NaN or infinity
  flat_logits,             ///< every logit the same, such as all zero
  empty_answer,            ///< the first token ends the answer
  character_run,           ///< one character over and over
  token_loop,              ///< the same token or sequence of tokens over and over
  replacement_characters,  ///< bytes that are no text
  same_answer,             ///< one answer to different prompts
};
/// "token_loop"; "" for none.
std::string_view to_string(Degeneration degeneration);

struct DegenerationFinding {
  Degeneration kind = Degeneration::none;
  std::string detail;  ///< "\"!\" 212 times in a row"
  explicit operator bool() const { return kind != Degeneration::none; }
};

/// Looks at the logits that tokens were drawn from.
class LogitWatch {
 public:
  void see(std::span<const float> logits);
  bool flat() const { return flat_; }
  bool non_finite() const { return non_finite_; }

 private:
  bool flat_ = false;
  bool non_finite_ = false;
};

struct AnswerFacts {
  std::span<const int32_t> tokens;
  std::string_view text;         ///< "" when there is no tokenizer
  bool has_text = true;          ///< whether `text` says anything
  bool ended_by_length = false;  ///< the answer was cut off rather than ended
  const LogitWatch* watch = nullptr;
};

/// The first sign that applies, in the order of Degeneration. The thresholds (docs/evaluation.md) leave rules
/// of dashes, refrains and lists of equal numbers alone: a run must be most of the answer, or go on until the
/// answer is cut off.
DegenerationFinding find_degeneration(const AnswerFacts& facts);
/// The same of a generated answer; `watch` may be null.
DegenerationFinding find_degeneration(const GenerateResult& answer, const LogitWatch* watch, bool has_text);
/// "the answer is degenerate (token_loop): 1 token repeated 40 times"
std::string describe(const DegenerationFinding& finding);

/// What an answer to one of several prompts looks like.
struct PromptAnswer {
  std::string_view prompt;
  std::string_view answer;
  std::string_view expected;
};
/// One answer that at least 4 in 5 of five or more different prompts got, though different answers were
/// expected.
DegenerationFinding find_same_answer(std::span<const PromptAnswer> answers);

}  // namespace hexlm
