#include "evaluation/evaluate.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "evaluation/choices.hpp"
#include "evaluation/prefix_runner.hpp"

namespace hexlm {
namespace {

/// What runs for a row: its prompt, and for choices each prompt with a choice behind it.
struct RowTokens {
  std::vector<int32_t> prompt;
  std::vector<std::vector<int32_t>> choices;
};

Result<RowTokens> encode_row(const TaskRow& row, const PromptEncoder& encode) {
  RowTokens tokens;
  HEXLM_ASSIGN(tokens.prompt, encode(row, ""));
  if (tokens.prompt.empty()) return fail(ErrorCode::bad_input, "the prompt has no tokens");
  if (row.scoring != Scoring::choices) return tokens;
  for (const std::string& choice : row.choices) {
    HEXLM_ASSIGN(std::vector<int32_t> whole, encode(row, choice));
    tokens.choices.push_back(std::move(whole));
  }
  return tokens;
}

Status check_length(const RowTokens& tokens, int64_t capacity) {
  size_t longest = tokens.prompt.size();
  for (const auto& choice : tokens.choices) longest = std::max(longest, choice.size());
  if (static_cast<int64_t>(longest) <= capacity) return {};
  return fail(ErrorCode::bad_input,
              fmt::format("the prompt has {} tokens, the context {}", longest, capacity));
}

Result<std::vector<RowTokens>> encode_rows(const Task& task, const PromptEncoder& encode, int64_t capacity) {
  std::vector<RowTokens> all;
  std::vector<TaskIssue> issues;
  for (const TaskRow& row : task.rows) {
    Result<RowTokens> tokens = encode_row(row, encode);
    if (!tokens && tokens.error().code != ErrorCode::bad_input)
      return tl::unexpected<Error>(std::move(tokens).error());
    const Status fits = tokens ? check_length(*tokens, capacity) : Status();
    if (!tokens) {
      issues.push_back({row.line, tokens.error().message});
    } else if (!fits) {
      issues.push_back({row.line, fits.error().message});
    } else {
      all.push_back(*std::move(tokens));
    }
  }
  if (!issues.empty()) return tl::unexpected<Error>(task_error(task.path, task.rows.size(), issues));
  return all;
}

class Evaluation {
 public:
  Evaluation(Session& session, const GenerateOptions& options, std::span<const std::vector<int32_t>> prompts)
      : session_(session), options_(options), runner_(session, prompts) {}

  const std::vector<size_t>& order() const { return runner_.order(); }

  Status run(size_t position, const TaskRow& row, const RowTokens& tokens, RowResult& result) {
    result.prompt_tokens = static_cast<int64_t>(tokens.prompt.size());
    HEXLM_ASSIGN(const size_t held, runner_.start(position));
    if (row.scoring == Scoring::choices) {
      HEXLM_ASSIGN(result.choices, score_choices(session_, tokens.prompt, tokens.choices, row.choices, held));
      score_answer(row, result);
      return {};
    }
    HEXLM_TRY(generate_answer(tokens.prompt, held, result));
    score_answer(row, result);
    return {};
  }

  int64_t reused_tokens() const { return runner_.reused_tokens(); }

 private:
  Status generate_answer(const std::vector<int32_t>& prompt, size_t held, RowResult& result) {
    LogitWatch watch;
    GenerateOptions options = options_;
    options.earlier_tokens.assign(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(held));
    options.on_logits = [&watch](std::span<const float> logits) { watch.see(logits); };
    const auto answer = generate(session_, std::span(prompt).subspan(held), options);
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
  HEXLM_ASSIGN(const std::vector<RowTokens> tokens, encode_rows(task, encode, session.capacity()));
  std::vector<std::vector<int32_t>> prompts;
  prompts.reserve(tokens.size());
  for (const RowTokens& row : tokens) prompts.push_back(row.prompt);
  EvalResult result;
  result.rows.resize(task.rows.size());
  Evaluation evaluation(session, options, prompts);
  const std::vector<size_t>& order = evaluation.order();
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t row = order[i];
    HEXLM_TRY(evaluation.run(i, task.rows[row], tokens[row], result.rows[row]));
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
