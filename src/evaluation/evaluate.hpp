#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "evaluation/answer_score.hpp"
#include "evaluation/degeneration.hpp"
#include "evaluation/task_file.hpp"
#include "runtime/generate.hpp"
#include "runtime/session.hpp"

namespace hexlm {

/// A row's prompt as the model takes it, followed by `answer` when that is not empty (choices). The one place
/// that knows how a prompt, a system message and an image become a model's input.
using PromptEncoder = std::function<Result<Prompt>(const TaskRow& row, std::string_view answer)>;

struct ChoiceScore {
  double log_likelihood = 0;  ///< Σ log p of the choice's tokens, nats
  double per_byte = 0;        ///< the same over the choice's bytes: long choices are not at a disadvantage
};

struct RowResult {
  std::string answer;
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;
  std::string finish_reason;
  bool parsed = false;         ///< json: the whole answer is JSON
  bool embedded_json = false;  ///< json: it is not, but has some among other text
  JsonScore json;
  TextScore text;
  std::vector<ChoiceScore> choices;
  size_t chosen = 0;           ///< the most likely choice
  size_t chosen_per_byte = 0;  ///< the most likely one per byte
  DegenerationFinding degeneration;
  /// json: every field right and none superfluous; text: exact; choices: the most likely one is right.
  bool correct = false;
};

struct EvalResult {
  std::vector<RowResult> rows;  ///< in the task's order
  DegenerationFinding same_answer;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  ///< of them, those that an earlier prompt had computed
  int64_t answer_tokens = 0;
  double seconds = 0;
};

/// Answers every row and scores it. All prompts are encoded first. Errors: bad_input naming the lines whose
/// prompt can't be encoded or doesn't fit the context; interrupted.
Result<EvalResult> evaluate(Session& session, const Task& task, const PromptEncoder& encode,
                            const GenerateOptions& options, const ProgressCallback& progress);

/// Scores an answer that exists already, as `evaluate` does.
void score_answer(const TaskRow& row, RowResult& result);

}  // namespace hexlm
