#include "evaluation/evaluate.hpp"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluation/eval_report.hpp"
#include "evaluation/prefix_runner.hpp"
#include "runtime/tiny_model.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

PromptEncoder plain_encoder(const Model& model) {
  return [&model](const TaskRow& row, std::string_view answer) -> Result<Prompt> {
    HEXLM_ASSIGN(std::vector<int32_t> ids,
                 model.tokenizer()->encode(row.system + row.prompt + std::string(answer)));
    return Prompt{std::move(ids), {}};
  };
}

TaskRow text_row(size_t line, const std::string& prompt) {
  TaskRow row;
  row.line = line;
  row.prompt = prompt;
  row.expected = "?";
  return row;
}

GenerateOptions short_answers() {
  GenerateOptions options;
  options.max_new_tokens = 6;
  return options;
}

TEST(PrefixRunner, PutsEqualBeginningsTogether) {
  const auto session = open_session(open_tiny_model(), high_precision());
  const std::vector<std::vector<int32_t>> prompts = {{1, 2, 3}, {9}, {1, 2}, {1, 2, 4}};
  EXPECT_THAT(PrefixRunner(*session, prompts).order(), testing::ElementsAre(2, 0, 3, 1));
}

/// The tiny model has recurrent states (snapshots), the reference qwen3 can be truncated.
class SharedPrompts : public testing::TestWithParam<const char*> {};

TEST_P(SharedPrompts, GiveTheAnswersOfSinglePrompts) {
  const auto model = *Model::open(test_data(GetParam()), {2, true, {}});
  const auto session = open_session(model, high_precision());
  ASSERT_TRUE(session);
  const auto encode = [](const TaskRow& row, std::string_view) -> Result<Prompt> {
    std::vector<int32_t> ids(40);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(7 + 3 * i);
    // A long beginning for all, then one for each half, then each row's own.
    const auto number = static_cast<int32_t>(row.line);
    for (int32_t i = 0; i < 20; ++i) ids.push_back(100 + number % 2 * 50 + i);
    for (int32_t i = 0; i < 4; ++i) ids.push_back(200 + number * 5 + i);
    return Prompt{std::move(ids), {}};
  };
  Task task;
  for (size_t line = 1; line <= 6; ++line) task.rows.push_back(text_row(line, "p"));
  GenerateOptions options = short_answers();
  options.ignore_eos = true;
  const auto together = evaluate(*session, task, encode, options, nullptr);
  ASSERT_TRUE(together) << together.error().message;
  EXPECT_EQ(together->prompt_tokens, 6 * 64);
  // Of the first prompt nothing is known; each of the others shares 40 or 60 tokens.
  EXPECT_EQ(together->reused_tokens, 4 * 60 + 40);
  for (size_t i = 0; i < task.rows.size(); ++i) {
    Task single;
    single.rows = {task.rows[i]};
    const auto alone = evaluate(*session, single, encode, options, nullptr);
    ASSERT_TRUE(alone);
    EXPECT_EQ(alone->rows[0].answer, together->rows[i].answer);
    EXPECT_EQ(alone->rows[0].answer_tokens, 6);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SharedPrompts,
                         testing::Values("models/tiny-vl", "reference/qwen3/checkpoint"));

TEST(Evaluate, ScoresChoicesByTheirLikelihood) {
  const auto model = open_tiny_model();
  const auto session = open_session(model, high_precision());
  Task task;
  TaskRow row = text_row(1, "Once upon a time, there was a little");
  row.scoring = Scoring::choices;
  row.choices = {" girl", " girl named Lily", " qqqq zz", " boy"};
  row.expected_choice = 1;
  task.rows = {row, row};
  task.rows[1].prompt = "Once upon a time";
  const auto result = evaluate(*session, task, plain_encoder(*model), short_answers(), nullptr);
  ASSERT_TRUE(result) << result.error().message;
  for (size_t r = 0; r < 2; ++r) {
    const auto prompt = *model->tokenizer()->encode(task.rows[r].prompt);
    for (size_t i = 0; i < row.choices.size(); ++i) {
      const auto whole = *model->tokenizer()->encode(task.rows[r].prompt + row.choices[i]);
      // Independently: all logits of the whole at once, softmax in long double.
      long double expected = 0;
      session->reset();
      const auto vocabulary = static_cast<size_t>(model->config().text.vocabulary_size);
      ASSERT_TRUE(session->forward(whole, static_cast<int64_t>(whole.size()),
                                   [&](int64_t first, int64_t rows, std::span<const float> logits) -> Status {
                                     for (int64_t t = 0; t < rows; ++t) {
                                       const auto next = static_cast<size_t>(first + t + 1);
                                       if (next < prompt.size() || next >= whole.size()) continue;
                                       long double sum = 0;
                                       const auto values =
                                           logits.subspan(static_cast<size_t>(t) * vocabulary, vocabulary);
                                       for (const float value : values)
                                         sum += std::exp(static_cast<long double>(value));
                                       expected += values[static_cast<size_t>(whole[next])] - std::log(sum);
                                     }
                                     return {};
                                   }));
      const ChoiceScore& score = result->rows[r].choices[i];
      EXPECT_NEAR(score.log_likelihood, static_cast<double>(expected), 2e-4) << row.choices[i];
      EXPECT_NEAR(score.per_byte, score.log_likelihood / static_cast<double>(row.choices[i].size()), 1e-12);
    }
  }
  EXPECT_EQ(result->rows[0].answer, " girl");
  EXPECT_FALSE(result->rows[0].correct);
}

TEST(Evaluate, NamesTheLinesThatDoNotFit) {
  SessionOptions options = high_precision();
  options.context = 16;
  const auto model = open_tiny_model();
  const auto session = open_session(model, options);
  Task task;
  task.path = "t.jsonl";
  task.rows = {text_row(1, "short"), text_row(7, std::string(100, 'a') + " b c d e f g h i j k l m n o p")};
  const auto result = evaluate(*session, task, plain_encoder(*model), short_answers(), nullptr);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::bad_input);
  EXPECT_THAT(result.error().message, HasSubstr("line 7: the prompt has"));
}

/// A task of one JSON row and one text row with made-up answers.
struct Sample {
  Task task;
  EvalResult result;
};

Sample sample(const std::vector<std::string>& answers) {
  Sample made;
  made.task.path = "t.jsonl";
  for (size_t i = 0; i < answers.size(); ++i) {
    TaskRow row = text_row(i + 1, "prompt " + std::to_string(i));
    row.scoring = Scoring::json;
    row.expected = {{"a", 1}, {"b", "x"}};
    RowResult result;
    result.answer = answers[i];
    score_answer(row, result);
    made.task.rows.push_back(row);
    made.result.rows.push_back(result);
  }
  return made;
}

TEST(EvalReport, CountsAndListsFailures) {
  const Sample made =
      sample({R"({"a": 1, "b": "x"})", R"({"a": 2, "b": "x"})", "sorry", R"(Sure: {"a": 1, "b": "x"})"});
  const EvalSummary summary = summarize(made.task, made.result);
  const Json json = eval_json(made.task, made.result, summary);
  EXPECT_EQ(json["rows"], 4);
  EXPECT_EQ(json["parsed"], 2);
  EXPECT_EQ(json["exact"], 1);
  EXPECT_EQ(json["json_among_text"], 1);
  EXPECT_DOUBLE_EQ(json["field_accuracy"].get<double>(), 3.0 / 4);
  EXPECT_DOUBLE_EQ(json["field_recall"].get<double>(), 3.0 / 8);
  EXPECT_DOUBLE_EQ(json["field_precision"].get<double>(), 3.0 / 4);
  EXPECT_EQ(json["fields"]["a"]["missing"], 2);
  ASSERT_EQ(json["failures"].size(), 3U);
  EXPECT_EQ(json["failures"][0]["reason"], "a wrong");
  EXPECT_EQ(json["failures"][1]["reason"], "no JSON");
  EXPECT_EQ(json["failures"][2]["reason"], "JSON among other text");
  EXPECT_EQ(json["results"].size(), 4U);
  EXPECT_DOUBLE_EQ(json["rates"]["parsed"]["low"].get<double>(), wilson(2, 4).low);
}

TEST(EvalReport, ComparesWithAnEarlierResult) {
  const Sample before = sample({R"({"a": 1, "b": "x"})", R"({"a": 1, "b": "x"})", "no"});
  const Sample after = sample({R"({"a": 1, "b": "x"})", "no", "no"});
  const Json earlier = eval_json(before.task, before.result, summarize(before.task, before.result));
  const auto paired = compare_with(earlier, "old.json", after.task, after.result);
  ASSERT_TRUE(paired) << paired.error().message;
  EXPECT_EQ(paired->pairs, 3);
  EXPECT_EQ(paired->lost, 1);
  EXPECT_EQ(paired->gained, 0);
  EXPECT_EQ(paired->p_value, 1);
  ASSERT_EQ(paired->changed.size(), 1U);
  EXPECT_EQ(paired->changed[0].line, 2U);
  EXPECT_EQ(paired->changed[0].after, "no");
  Sample other = after;
  other.task.rows[0].prompt = "another";
  EXPECT_THAT(compare_with(earlier, "old.json", other.task, other.result).error().message,
              HasSubstr("old.json: the prompt of line 1 was another one"));
  EXPECT_FALSE(compare_with(Json::parse("[1]"), "old.json", after.task, after.result));
  EXPECT_FALSE(compare_with(Json::parse(R"({"results": [{"line": 1}]})"), "o", after.task, after.result));
}

}  // namespace
}  // namespace hexlm
