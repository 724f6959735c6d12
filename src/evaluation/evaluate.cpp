#include "evaluation/evaluate.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "evaluation/choices.hpp"
#include "evaluation/prefix_runner.hpp"

namespace hexlm {
namespace {

/// Features of images that are kept from the check of all rows to their answers; more are computed again.
constexpr uint64_t kept_feature_bytes = uint64_t{512} << 20;

/// What runs for a row: its prompt, and for choices the prompt with each choice behind it.
struct RowPrompts {
  Prompt prompt;
  std::vector<Prompt> choices;
  bool dropped = false;  ///< its images were, and must be encoded again
};

Result<RowPrompts> encode_row(const TaskRow& row, const PromptEncoder& encode) {
  RowPrompts prompts;
  HEXLM_ASSIGN(prompts.prompt, encode(row, ""));
  if (prompts.prompt.tokens.empty()) return fail(ErrorCode::bad_input, "the prompt has no tokens");
  if (row.scoring != Scoring::choices) return prompts;
  for (const std::string& choice : row.choices) {
    HEXLM_ASSIGN(Prompt whole, encode(row, choice));
    prompts.choices.push_back(std::move(whole));
  }
  return prompts;
}

Status check_length(const RowPrompts& prompts, int64_t capacity) {
  size_t longest = prompts.prompt.tokens.size();
  for (const Prompt& choice : prompts.choices) longest = std::max(longest, choice.tokens.size());
  if (static_cast<int64_t>(longest) <= capacity) return {};
  return fail(ErrorCode::bad_input,
              fmt::format("the prompt has {} tokens, the context {}", longest, capacity));
}

void keep_within(uint64_t& budget, RowPrompts& prompts) {
  uint64_t bytes = 0;
  for (const auto& image : prompts.prompt.images) bytes += image->features.size() * sizeof(float);
  if (bytes <= budget) {
    budget -= bytes;
    return;
  }
  prompts.dropped = true;
  prompts.prompt.images.clear();
  for (Prompt& choice : prompts.choices) choice.images.clear();
}

Result<std::vector<RowPrompts>> encode_rows(const Task& task, const PromptEncoder& encode, int64_t capacity) {
  std::vector<RowPrompts> all;
  std::vector<TaskIssue> issues;
  uint64_t budget = kept_feature_bytes;
  for (const TaskRow& row : task.rows) {
    if (interrupted()) return fail(ErrorCode::interrupted, "interrupted while the prompts were encoded");
    Result<RowPrompts> prompts = encode_row(row, encode);
    if (!prompts && prompts.error().code != ErrorCode::bad_input)
      return tl::unexpected<Error>(std::move(prompts).error());
    const Status fits = prompts ? check_length(*prompts, capacity) : Status();
    if (!prompts) {
      issues.push_back({row.line, prompts.error().message});
    } else if (!fits) {
      issues.push_back({row.line, fits.error().message});
    } else {
      keep_within(budget, *prompts);
      all.push_back(*std::move(prompts));
    }
  }
  if (!issues.empty()) return tl::unexpected<Error>(task_error(task.path, task.rows.size(), issues));
  return all;
}

/// The tokens of a prompt that another may share: those before its first image, as images are rarely the
/// same.
std::vector<int32_t> shareable(const TaskRow& row, const Prompt& prompt, const Model& model) {
  const auto& vision = model.config().vision;
  if (row.image.empty() && prompt.images.empty()) return prompt.tokens;
  auto end = prompt.tokens.end();
  if (vision) end = std::find(prompt.tokens.begin(), prompt.tokens.end(), vision->image_token);
  return {prompt.tokens.begin(), end};
}

class Evaluation {
 public:
  Evaluation(Session& session, const GenerateOptions& options, std::span<const std::vector<int32_t>> prompts)
      : session_(session), options_(options), runner_(session, prompts) {}

  const std::vector<size_t>& order() const { return runner_.order(); }

  Status run(size_t position, const TaskRow& row, const RowPrompts& prompts, RowResult& result) {
    result.prompt_tokens = static_cast<int64_t>(prompts.prompt.tokens.size());
    HEXLM_ASSIGN(const size_t held, runner_.start(position));
    if (row.scoring == Scoring::choices) {
      HEXLM_ASSIGN(result.choices,
                   score_choices(session_, prompts.prompt, prompts.choices, row.choices, held));
      score_answer(row, result);
      return {};
    }
    HEXLM_TRY(generate_answer(prompts.prompt, held, result));
    score_answer(row, result);
    return {};
  }

  int64_t reused_tokens() const { return runner_.reused_tokens(); }

 private:
  Status generate_answer(const Prompt& prompt, size_t held, RowResult& result) {
    LogitWatch watch;
    GenerateOptions options = options_;
    options.earlier_tokens.assign(prompt.tokens.begin(),
                                  prompt.tokens.begin() + static_cast<std::ptrdiff_t>(held));
    options.on_logits = [&watch](std::span<const float> logits) { watch.see(logits); };
    const auto& vision = session_.model().config().vision;
    HEXLM_ASSIGN(const Prompt rest,
                 drop_prefix(prompt, static_cast<int64_t>(held), vision ? vision->image_token : -1));
    const auto answer = generate(session_, rest, options);
    if (!answer) {
      // A model whose logits are no numbers is a result of an evaluation, not its failure.
      if (!watch.non_finite()) return tl::unexpected<Error>(answer.error());
      result.finish_reason = "error";
      AnswerFacts facts;
      facts.watch = &watch;
      result.degeneration = find_degeneration(facts);
      return {};
    }
    if (answer->finish_reason == "interrupted") return fail(ErrorCode::interrupted, "interrupted");
    result.answer = answer->text;
    result.answer_tokens = static_cast<int64_t>(answer->token_ids.size());
    result.finish_reason = answer->finish_reason;
    result.degeneration = find_degeneration(*answer, &watch, session_.model().tokenizer() != nullptr);
    return {};
  }

  Session& session_;
  const GenerateOptions& options_;
  PrefixRunner runner_;
};

size_t largest(const std::vector<ChoiceScore>& scores, double ChoiceScore::* member) {
  const auto best = std::max_element(
      scores.begin(), scores.end(), [member](const auto& a, const auto& b) { return a.*member < b.*member; });
  return static_cast<size_t>(best - scores.begin());
}

DegenerationFinding same_answer(const Task& task, const std::vector<RowResult>& rows) {
  std::vector<std::string> expected;
  expected.reserve(rows.size());
  for (const TaskRow& row : task.rows) expected.push_back(row.expected.dump());
  std::vector<PromptAnswer> answers;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (task.rows[i].scoring == Scoring::choices || !task.rows[i].image.empty()) continue;
    answers.push_back({task.rows[i].prompt, rows[i].answer, expected[i]});
  }
  return find_same_answer(answers);
}

}  // namespace

void score_answer(const TaskRow& row, RowResult& result) {
  if (row.scoring == Scoring::choices) {
    result.chosen = largest(result.choices, &ChoiceScore::log_likelihood);
    result.chosen_per_byte = largest(result.choices, &ChoiceScore::per_byte);
    result.answer = row.choices[result.chosen];
    result.correct = result.chosen == row.expected_choice;
    return;
  }
  if (row.scoring == Scoring::text) {
    result.text = score_text(row.expected.get<std::string>(), result.answer);
    result.correct = result.text.exact;
    return;
  }
  const std::optional<Json> answer = parse_answer(result.answer);
  result.parsed = answer.has_value();
  result.embedded_json = !result.parsed && holds_json(result.answer);
  result.json = answer ? score_json(row.expected, *answer) : score_missing(row.expected);
  result.correct = answer && result.json.exact();
}

Result<EvalResult> evaluate(Session& session, const Task& task, const PromptEncoder& encode,
                            const GenerateOptions& options, const ProgressCallback& progress) {
  HEXLM_ASSIGN(std::vector<RowPrompts> prompts, encode_rows(task, encode, session.capacity()));
  std::vector<std::vector<int32_t>> beginnings;
  beginnings.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i)
    beginnings.push_back(shareable(task.rows[i], prompts[i].prompt, session.model()));
  EvalResult result;
  result.rows.resize(task.rows.size());
  Evaluation evaluation(session, options, beginnings);
  const std::vector<size_t>& order = evaluation.order();
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t row = order[i];
    if (prompts[row].dropped) {
      HEXLM_ASSIGN(prompts[row], encode_row(task.rows[row], encode));
    }
    HEXLM_TRY(evaluation.run(i, task.rows[row], prompts[row], result.rows[row]));
    prompts[row] = {};
    result.prompt_tokens += result.rows[row].prompt_tokens;
    result.answer_tokens += result.rows[row].answer_tokens;
    if (interrupted() || (progress && !progress("rows", i + 1, order.size())))
      return fail(ErrorCode::interrupted,
                  fmt::format("interrupted after {} of {} rows", i + 1, order.size()));
  }
  result.reused_tokens = evaluation.reused_tokens();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.same_answer = same_answer(task, result.rows);
  session.reset();
  return result;
}

}  // namespace hexlm
