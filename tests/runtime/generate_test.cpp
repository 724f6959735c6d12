#include "runtime/generate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/json.hpp"
#include "runtime/tiny_model.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

/// One answer that transformers gave, of eval/ground_truth.json.
struct Truth {
  std::vector<int32_t> prompt;
  std::vector<int32_t> greedy;
  std::string text;
};

std::vector<Truth> ground_truth() {
  const auto json = read_json(test_data("models/tiny-vl/eval/ground_truth.json"));
  EXPECT_TRUE(json);
  std::vector<Truth> truths;
  for (const Json& entry : (*json)["generation"]) {
    truths.push_back({entry["input_ids"].get<std::vector<int32_t>>(),
                      entry["greedy"].get<std::vector<int32_t>>(), entry["text"].get<std::string>()});
  }
  EXPECT_EQ(truths.size(), 10U);
  return truths;
}

std::unique_ptr<Session> tiny_session(int64_t context = 0) {
  SessionOptions options = high_precision();
  options.context = context;
  return open_session(open_tiny_model(), options);
}

GenerateOptions greedy(int64_t tokens) {
  GenerateOptions options;
  options.max_new_tokens = tokens;
  options.eos_tokens = open_tiny_model()->generation().eos_tokens;
  return options;
}

TEST(Generate, ContinuesAsTransformersDoes) {
  const auto session = tiny_session();
  ASSERT_TRUE(session);
  for (const Truth& truth : ground_truth()) {
    session->reset();
    std::string streamed;
    GenerateOptions options = greedy(static_cast<int64_t>(truth.greedy.size()));
    options.on_text = [&streamed](std::string_view piece) {
      streamed += piece;
      return true;
    };
    const auto result = generate(*session, truth.prompt, options);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->token_ids, truth.greedy);
    EXPECT_EQ(result->text, truth.text);
    EXPECT_EQ(streamed, truth.text);
    EXPECT_EQ(result->prompt_tokens, static_cast<int64_t>(truth.prompt.size()));
    const bool ended = truth.greedy.back() == 6137 || truth.greedy.back() == 6135;
    EXPECT_EQ(result->finish_reason, ended ? "stop" : "length");
  }
}

TEST(Generate, StopStringsAreNotPartOfTheAnswer) {
  const auto session = tiny_session();
  const Truth truth = ground_truth()[0];
  GenerateOptions options = greedy(48);
  options.stop = {"Lily. She", "zzz"};
  std::string streamed;
  options.on_text = [&streamed](std::string_view piece) {
    streamed += piece;
    return true;
  };
  const auto result = generate(*session, truth.prompt, options);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->text, ", there was a little girl named ");
  EXPECT_EQ(streamed, result->text);
  EXPECT_EQ(result->finish_reason, "stop");
  EXPECT_LT(result->token_ids.size(), 48U);
}

TEST(Generate, ASpecialTokenCanBeAStopString) {
  const auto session = tiny_session();
  const Truth truth = ground_truth()[1];  // ends with <|im_end|>
  GenerateOptions options = greedy(20);
  options.ignore_eos = true;
  const auto longer = generate(*session, truth.prompt, options);
  ASSERT_TRUE(longer);
  EXPECT_EQ(longer->token_ids.size(), 20U);
  EXPECT_EQ(longer->finish_reason, "length");
  session->reset();
  options.stop = {"<|im_end|>"};
  const auto stopped = generate(*session, truth.prompt, options);
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->token_ids, truth.greedy);
  EXPECT_EQ(stopped->finish_reason, "stop");
}

TEST(Generate, EndsWithTheContext) {
  const auto session = tiny_session(10);
  const Truth truth = ground_truth()[0];
  const auto result = generate(*session, truth.prompt, greedy(48));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->finish_reason, "length");
  EXPECT_EQ(session->length(), 10);
  EXPECT_EQ(result->token_ids.size(), 7U);  // 6 that were run, and the one they predict
}

TEST(Generate, RefusesAPromptLongerThanTheContext) {
  const auto session = tiny_session(10);
  const auto refused = generate(*session, std::vector<int32_t>(11, 5), greedy(1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::limit);
  EXPECT_THAT(refused.error().message, HasSubstr("the prompt has 11 tokens, the context 10"));
  EXPECT_EQ(session->length(), 0);
  EXPECT_EQ(generate(*session, std::span<const int32_t>(), greedy(1)).error().code, ErrorCode::usage);
}

TEST(Generate, ZeroTokensOnlyRunThePrompt) {
  const auto session = tiny_session();
  const auto result = generate(*session, ground_truth()[0].prompt, greedy(0));
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->token_ids.empty());
  EXPECT_EQ(result->finish_reason, "length");
  EXPECT_EQ(session->length(), 4);
}

TEST(Generate, ASeedFixesTheText) {
  const auto session = tiny_session();
  const auto sampled = [&](uint64_t seed) {
    session->reset();
    GenerateOptions options = greedy(24);
    options.sampling = open_tiny_model()->generation().sampling;
    options.sampling.temperature = 1.5F;
    options.sampling.seed = seed;
    const auto result = generate(*session, ground_truth()[0].prompt, options);
    EXPECT_TRUE(result);
    return result ? result->token_ids : std::vector<int32_t>();
  };
  const auto first = sampled(3);
  EXPECT_EQ(sampled(3), first);
  EXPECT_NE(sampled(4), first);
}

TEST(Generate, TheReceiverCanStopIt) {
  const auto session = tiny_session();
  GenerateOptions options = greedy(48);
  int pieces = 0;
  options.on_text = [&pieces](std::string_view) { return ++pieces < 3; };
  const auto result = generate(*session, ground_truth()[0].prompt, options);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->finish_reason, "interrupted");
  EXPECT_EQ(pieces, 3);
}

TEST(Generate, EarlierTokensCountForTheRepetitionPenalty) {
  const auto session = tiny_session();
  const Truth truth = ground_truth()[0];
  GenerateOptions options = greedy(1);
  options.sampling.repetition_penalty = 100;
  options.earlier_tokens = {truth.greedy[0]};
  const auto result = generate(*session, truth.prompt, options);
  ASSERT_TRUE(result);
  EXPECT_NE(result->token_ids[0], truth.greedy[0]);
  EXPECT_EQ(result->prompt_tokens, static_cast<int64_t>(truth.prompt.size()) + 1);
}

}  // namespace
}  // namespace hexlm
