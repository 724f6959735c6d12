#include "evaluation/degeneration.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>

#include "base/atomic_file.hpp"
#include "runtime/tiny_model.hpp"

namespace hexlm {
namespace {

Degeneration kind_of(const std::vector<int32_t>& tokens, const std::string& text, bool cut = false) {
  AnswerFacts facts;
  facts.tokens = tokens;
  facts.text = text;
  facts.ended_by_length = cut;
  return find_degeneration(facts).kind;
}

std::vector<int32_t> counting(int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = 100 + i;
  return tokens;
}

std::vector<int32_t> repeated(std::vector<int32_t> start, const std::vector<int32_t>& unit, int times) {
  for (int i = 0; i < times; ++i) start.insert(start.end(), unit.begin(), unit.end());
  return start;
}

TEST(Degeneration, SeesRunsOfACharacter) {
  EXPECT_EQ(kind_of(counting(5), std::string(200, '!')), Degeneration::character_run);
  EXPECT_EQ(kind_of(counting(5), "Hi " + std::string(16, '!')), Degeneration::character_run);
  EXPECT_EQ(kind_of(counting(5), "哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈"), Degeneration::character_run);
  EXPECT_EQ(kind_of(counting(80), std::string(400, 'x') + std::string(300, 'y') + " and words"),
            Degeneration::character_run);
  EXPECT_EQ(kind_of(counting(40),
                    "Title\n" + std::string(72, '-') + "\n" +
                        "and a paragraph of text that is longer than the rule above it, as texts are"),
            Degeneration::none);
  EXPECT_EQ(kind_of(counting(9), "Wait......... what?"), Degeneration::none);
}

TEST(Degeneration, SeesLoopsOfTokens) {
  const std::string text = "some text that says nothing about the tokens";
  EXPECT_EQ(kind_of(repeated({1, 2, 3}, {7}, 40), text), Degeneration::token_loop);
  EXPECT_EQ(kind_of(repeated(counting(30), {7, 8, 9}, 12), text), Degeneration::token_loop);
  // A long answer that ends in a loop and is cut off there, and the same with an end.
  EXPECT_EQ(kind_of(repeated(counting(300), {7, 8, 9, 6, 5}, 6), text, true), Degeneration::token_loop);
  EXPECT_EQ(kind_of(repeated(counting(300), {7, 8, 9, 6, 5}, 6), text, false), Degeneration::none);
  // A refrain three times, and a short laugh.
  EXPECT_EQ(kind_of(repeated({}, counting(20), 3), text), Degeneration::none);
  EXPECT_EQ(kind_of(repeated({1, 2}, {7}, 10), text), Degeneration::none);
}

TEST(Degeneration, SeesAnswersWithoutText) {
  EXPECT_EQ(kind_of({2}, ""), Degeneration::empty_answer);
  EXPECT_EQ(kind_of({5, 2}, " \n"), Degeneration::empty_answer);
  EXPECT_EQ(kind_of({}, ""), Degeneration::none);  // nothing was asked for
  EXPECT_EQ(kind_of(counting(6),
                    "a\xEF\xBF\xBD\xEF\xBF\xBD"
                    "b\xFF"),
            Degeneration::replacement_characters);
  EXPECT_EQ(kind_of(counting(6), "cut off \xEF\xBF\xBD", true), Degeneration::none);
}

TEST(Degeneration, SeesLogitsThatAreNone) {
  const auto with = [](const std::vector<float>& logits) {
    LogitWatch watch;
    watch.see(std::vector<float>{1, 2, 3});
    watch.see(logits);
    AnswerFacts facts;
    facts.watch = &watch;
    return find_degeneration(facts).kind;
  };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(with({0, 0, 0}), Degeneration::flat_logits);
  EXPECT_EQ(with({0, std::numeric_limits<float>::quiet_NaN(), 0}), Degeneration::non_finite_logits);
  EXPECT_EQ(with({0, infinity, 0}), Degeneration::non_finite_logits);
  EXPECT_EQ(with({0, -infinity, 1}), Degeneration::none);
}

TEST(Degeneration, SeesAnswersThatIgnoreThePrompt) {
  std::vector<PromptAnswer> answers = {{"a", "x", "1"}, {"b", "x", "2"}, {"c", "x", "3"}, {"d", "x", "4"}};
  EXPECT_FALSE(find_same_answer(answers));  // too few to tell
  answers.push_back({"e", "other", "5"});
  EXPECT_EQ(find_same_answer(answers).kind, Degeneration::same_answer);
  answers.push_back({"f", "another", "6"});
  EXPECT_FALSE(find_same_answer(answers));
  // "yes" may be right every time.
  for (PromptAnswer& answer : answers) answer = {answer.prompt, "yes", "yes"};
  EXPECT_FALSE(find_same_answer(answers));
}

/// Passages of the held-out text (English, Chinese poems, code), as long as usual answers.
TEST(Degeneration, LeavesTwoHundredPassagesAlone) {
  const auto text = read_file(test_data("models/tiny-vl/eval/heldout.txt"));
  ASSERT_TRUE(text);
  const auto model = open_tiny_model();
  const auto ids = model->tokenizer()->encode(*text);
  ASSERT_TRUE(ids);
  constexpr size_t passages = 200;
  const size_t step = ids->size() / passages;
  for (size_t i = 0; i < passages; ++i) {
    const auto tokens = std::span(*ids).subspan(i * step, step);
    AnswerFacts facts;
    const std::string passage = model->tokenizer()->decode(tokens);
    facts.tokens = tokens;
    facts.text = passage;
    facts.ended_by_length = true;
    const DegenerationFinding finding = find_degeneration(facts);
    EXPECT_FALSE(finding) << finding.detail << ": " << passage;
  }
}

}  // namespace
}  // namespace hexlm
