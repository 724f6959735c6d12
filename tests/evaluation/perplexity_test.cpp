#include "evaluation/perplexity.hpp"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/atomic_file.hpp"
#include "evaluation/scripts.hpp"
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

/// −log p of `tokens[index]` after the `context` tokens before it, run on their own.
double nll_after(Session& session, std::span<const int32_t> tokens, size_t index, size_t context) {
  session.reset();
  const auto logits = session.forward_last(tokens.subspan(index - context, context));
  EXPECT_TRUE(logits);
  long double sum = 0;
  for (const float logit : *logits) sum += std::exp(static_cast<long double>(logit));
  return static_cast<double>(std::log(sum) - (*logits)[static_cast<size_t>(tokens[index])]);
}

TEST(Perplexity, OfSlidingWindowsIsTheDefinition) {
  const auto session = open_session(open_tiny_model(), high_precision());
  const std::vector<int32_t> ids = heldout_tokens();
  const std::span<const int32_t> tokens(ids.data(), 41);
  PerplexityOptions options;
  options.window = 16;
  options.stride = 6;
  std::vector<int64_t> scored;
  options.on_token = [&scored](int64_t index, double) { scored.push_back(index); };
  const auto result = perplexity(*session, tokens, options, nullptr);
  ASSERT_TRUE(result) << result.error().message;
  // Every token but the first, once and in order.
  ASSERT_EQ(scored.size(), 40U);
  for (size_t i = 0; i < scored.size(); ++i) EXPECT_EQ(scored[i], static_cast<int64_t>(i) + 1);
  // Windows start at 0, 6, 12, …; token i counts in the first window that holds it.
  double sum = 0;
  for (size_t i = 1; i < 41; ++i) {
    size_t begin = 0;
    while (begin + 16 <= i) begin += 6;
    sum += nll_after(*session, tokens, i, i - begin);
  }
  EXPECT_NEAR(result->nll_mean, sum / 40, 1e-5);
  EXPECT_NEAR(result->nll_sum, result->nll_mean * 40, 1e-9);
}

TEST(Perplexity, OfSecondHalvesIsTheDefinition) {
  const auto session = open_session(open_tiny_model(), high_precision());
  const std::vector<int32_t> ids = heldout_tokens();
  const std::span<const int32_t> tokens(ids.data(), 40);
  PerplexityOptions options;
  options.window = 16;
  options.protocol = PerplexityProtocol::second_half;
  const auto result = perplexity(*session, tokens, options, nullptr);
  ASSERT_TRUE(result) << result.error().message;
  // Two complete windows; in each, positions 8 … 14 predict tokens 9 … 15.
  EXPECT_EQ(result->scored, 14);
  double sum = 0;
  for (size_t begin = 0; begin < 32; begin += 16) {
    for (size_t i = 9; i < 16; ++i) sum += nll_after(*session, tokens, begin + i, i);
  }
  EXPECT_NEAR(result->nll_mean, sum / 14, 1e-5);
  options.stride = 4;
  EXPECT_EQ(perplexity(*session, tokens, options, nullptr).error().code, ErrorCode::usage);
  options.stride = 0;
  EXPECT_EQ(perplexity(*session, tokens.first(15), options, nullptr).error().code, ErrorCode::bad_input);
  options.protocol = PerplexityProtocol::windows;
  options.stride = 17;
  EXPECT_EQ(perplexity(*session, tokens, options, nullptr).error().code, ErrorCode::usage);
}

TEST(Scripts, OfTokensAreThoseOfTheirTexts) {
  EXPECT_TRUE(looks_like_code("  for (int i = 0; i < n; ++i) {"));
  EXPECT_TRUE(looks_like_code("x = y_1[3]"));
  EXPECT_FALSE(looks_like_code("He said (quietly) that he would come back before the evening."));
  EXPECT_FALSE(looks_like_code("《诗经》(上) (下)"));
  const Tokenizer& tokenizer = *open_tiny_model()->tokenizer();
  const std::string text =
      "The old house, 42.\n白首题将断肠句。\nreturn f(x) + g[i];\n```\nplain words\n```\nThe end";
  const auto ids = tokenizer.encode(text);
  ASSERT_TRUE(ids);
  const std::vector<TextScript> scripts = token_scripts(tokenizer, *ids);
  ASSERT_EQ(scripts.size(), ids->size());
  size_t at = 0;
  for (size_t i = 0; i < scripts.size(); ++i) {
    const size_t line =
        static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n'));
    const std::string_view bytes = tokenizer.token_bytes((*ids)[i]);
    const bool letters = std::isalpha(static_cast<unsigned char>(bytes.back())) != 0;
    if (line == 2 || (line >= 3 && line <= 5 && bytes != "\n")) {
      EXPECT_EQ(scripts[i], TextScript::code) << bytes;
    }
    if (line == 1 && bytes != "\n") {
      EXPECT_EQ(scripts[i], TextScript::han);
    }
    if ((line == 0 || line == 6) && letters) {
      EXPECT_EQ(scripts[i], TextScript::latin) << bytes;
    }
    at += bytes.size();
  }
}

}  // namespace
}  // namespace hexlm
