#include "evaluation/perplexity.hpp"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/atomic_file.hpp"
#include "runtime/tiny_model.hpp"

namespace hexlm {
namespace {

std::vector<int32_t> heldout_tokens() {
  const auto text = read_file(test_data("models/tiny-vl/eval/heldout.txt"));
  EXPECT_TRUE(text);
  const auto ids = open_tiny_model()->tokenizer()->encode(*text);
  EXPECT_TRUE(ids);
  return *ids;
}

TEST(NegativeLogLikelihood, IsTheSoftmaxs) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  EXPECT_NEAR(negative_log_likelihood(logits, 0), -std::log(0.5), 1e-6);
  EXPECT_NEAR(negative_log_likelihood(logits, 2), -std::log(0.2), 1e-6);
  // A common offset changes nothing, also where exp would overflow.
  EXPECT_NEAR(negative_log_likelihood(std::vector<float>{1000, 1000}, 1), std::log(2.0), 1e-12);
}

TEST(Perplexity, OfTheHeldOutTextIsTransformers) {
  const auto session = open_session(open_tiny_model(), high_precision());
  ASSERT_TRUE(session);
  const auto result = perplexity(*session, heldout_tokens(), 512, nullptr);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->tokens, 23997);
  EXPECT_EQ(result->scored, 23950);
  EXPECT_NEAR(result->perplexity, 55.61915262132735, 0.03);
  EXPECT_NEAR(result->perplexity, std::exp(result->nll_mean), 1e-9);
}

TEST(Perplexity, WindowsDoNotOverlap) {
  const auto session = open_session(open_tiny_model(), high_precision());
  const std::vector<int32_t> ids = heldout_tokens();
  const std::span<const int32_t> tokens(ids.data(), 65);
  // 64 tokens in two windows and one left over, which scores nothing.
  const auto whole = perplexity(*session, tokens, 32, nullptr);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->scored, 62);
  const auto first = perplexity(*session, tokens.first(32), 32, nullptr);
  const auto second = perplexity(*session, tokens.subspan(32, 32), 32, nullptr);
  ASSERT_TRUE(first && second);
  EXPECT_NEAR(whole->nll_mean, (first->nll_mean + second->nll_mean) / 2, 1e-9);
}

TEST(Perplexity, ReportsProgressAndStops) {
  const auto session = open_session(open_tiny_model(), high_precision());
  const std::vector<int32_t> ids = heldout_tokens();
  std::vector<uint64_t> seen;
  const auto progress = [&seen](const std::string&, uint64_t done, uint64_t total) {
    EXPECT_EQ(total, 70U);
    seen.push_back(done);
    return done < 64;
  };
  const auto result = perplexity(*session, std::span(ids).first(70), 32, progress);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::interrupted);
  EXPECT_THAT(seen, testing::ElementsAre(32, 64));
}

TEST(Perplexity, RefusesWindowsAndTextsThatScoreNothing) {
  SessionOptions options = high_precision();
  options.context = 64;
  const auto session = open_session(open_tiny_model(), options);
  const std::vector<int32_t> ids(10, 5);
  EXPECT_EQ(perplexity(*session, ids, 1, nullptr).error().code, ErrorCode::usage);
  EXPECT_EQ(perplexity(*session, ids, 65, nullptr).error().code, ErrorCode::usage);
  EXPECT_EQ(perplexity(*session, std::span(ids).first(1), 8, nullptr).error().code, ErrorCode::bad_input);
  EXPECT_EQ(perplexity(*session, {}, 8, nullptr).error().code, ErrorCode::bad_input);
}

}  // namespace
}  // namespace hexlm
