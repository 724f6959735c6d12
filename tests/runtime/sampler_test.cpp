#include "runtime/sampler.hpp"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <vector>

namespace hexlm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Sampler make(const SamplingOptions& options, int64_t vocabulary) {
  auto sampler = Sampler::create(options, vocabulary);
  EXPECT_TRUE(sampler) << sampler.error().message;
  return *std::move(sampler);
}

int32_t draw(Sampler& sampler, const std::vector<float>& logits) {
  const auto id = sampler.sample(logits);
  EXPECT_TRUE(id) << id.error().message;
  return id.value_or(-1);
}

/// Shares of each id in `draws` draws from the same logits.
std::map<int32_t, double> shares(SamplingOptions options, const std::vector<float>& logits,
                                 int draws = 20000) {
  options.seed = 7;
  Sampler sampler = make(options, static_cast<int64_t>(logits.size()));
  std::map<int32_t, double> result;
  for (int i = 0; i < draws; ++i) result[draw(sampler, logits)] += 1.0 / draws;
  return result;
}

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

/// Five standard deviations of a share of 1/2 in 20000 draws; the seed is fixed, so a pass stays one.
constexpr double share_tolerance = 0.018;

TEST(Sampler, GreedyTakesTheLowestIdOfTheBest) {
  Sampler sampler = make({}, 5);
  EXPECT_EQ(draw(sampler, {1, 3, 2, 3, -1}), 1);
}

TEST(Sampler, NeverDrawsIdsBeyondTheVocabulary) {
  Sampler greedy = make({}, 3);
  EXPECT_EQ(draw(greedy, {0, 1, 2, 9, 9}), 2);
  SamplingOptions options;
  options.temperature = 1;
  Sampler random = make(options, 3);
  for (int i = 0; i < 200; ++i) EXPECT_LT(draw(random, {0, 0, 0, 50, 50}), 3);
}

TEST(Sampler, DrawsByTheSoftmax) {
  SamplingOptions options;
  options.temperature = 1;
  auto share = shares(options, logs({0.5, 0.3, 0.2}));
  EXPECT_NEAR(share[0], 0.5, share_tolerance);
  EXPECT_NEAR(share[1], 0.3, share_tolerance);
  EXPECT_NEAR(share[2], 0.2, share_tolerance);
}

TEST(Sampler, TemperatureDividesTheLogits) {
  SamplingOptions options;
  options.temperature = 2;
  // p^(1/2) of (0.8, 0.2), normalised: 2/3 and 1/3.
  auto share = shares(options, logs({0.8, 0.2}));
  EXPECT_NEAR(share[0], 2.0 / 3, share_tolerance);
}

TEST(Sampler, TopKKeepsTiesWithTheLastKept) {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 2;
  const auto share = shares(options, logs({0.4, 0.2, 0.2, 0.1, 0.1}));
  EXPECT_EQ(share.size(), 3U);
  EXPECT_NEAR(share.at(0), 0.5, share_tolerance);
  EXPECT_NEAR(share.at(1), 0.25, share_tolerance);
  EXPECT_NEAR(share.at(2), 0.25, share_tolerance);
}

TEST(Sampler, TopKOfOneIsGreedy) {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 1;
  EXPECT_EQ(shares(options, logs({0.3, 0.4, 0.3}), 300).size(), 1U);
}

TEST(Sampler, TopPKeepsTheCrossingToken) {
  SamplingOptions options;
  options.temperature = 1;
  const std::vector<float> logits = logs({0.1, 0.5, 0.4});
  options.top_p = 0.45F;
  EXPECT_EQ(shares(options, logits, 300).size(), 1U);
  options.top_p = 0.55F;
  const auto share = shares(options, logits);
  EXPECT_EQ(share.size(), 2U);
  EXPECT_NEAR(share.at(1), 5.0 / 9, share_tolerance);
  options.top_p = 0.95F;
  EXPECT_EQ(shares(options, logits).size(), 3U);
}

TEST(Sampler, TemperatureComesBeforeTopP) {
  SamplingOptions options;
  options.top_p = 0.75F;
  options.temperature = 1;
  EXPECT_EQ(shares(options, logs({0.8, 0.2}), 300).size(), 1U);
  options.temperature = 2;  // 2/3 alone no longer reaches 0.75
  EXPECT_EQ(shares(options, logs({0.8, 0.2}), 300).size(), 2U);
}

TEST(Sampler, TopPIsOfWhatTopKLeft) {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 2;
  options.top_p = 0.6F;
  // 0.4 and 0.25 renormalise to 0.615 and 0.385: the first alone reaches 0.6, of the whole it would not.
  EXPECT_EQ(shares(options, logs({0.4, 0.25, 0.2, 0.15}), 300).size(), 1U);
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  SamplingOptions options;
  options.temperature = 1;
  options.min_p = 0.5F;
  const auto share = shares(options, logs({0.4, 0.25, 0.19, 0.16}));
  EXPECT_EQ(share.size(), 2U);
  EXPECT_NEAR(share.at(0), 0.4 / 0.65, share_tolerance);
}

TEST(Sampler, RepetitionPenaltyCountsPromptAndOutputOnce) {
  SamplingOptions options;
  options.repetition_penalty = 2;
  Sampler sampler = make(options, 4);
  sampler.observe_prompt(std::vector<int32_t>{0, 0, 0});
  EXPECT_EQ(draw(sampler, {3, 2, 1, 0}), 1);  // 3/2 < 2
  EXPECT_EQ(draw(sampler, {3, 2, 1, 0}), 0);  // now 2/2 < 3/2, which is not divided again
  Sampler negative = make(options, 2);
  negative.observe_prompt(std::vector<int32_t>{0});
  EXPECT_EQ(draw(negative, {-1, -1.5F}), 1);  // −1·2 < −1.5
}

TEST(Sampler, PresenceAndFrequencyCountTheOutputOnly) {
  SamplingOptions options;
  options.presence_penalty = 1;
  Sampler presence = make(options, 2);
  presence.observe_prompt(std::vector<int32_t>{0});
  EXPECT_EQ(draw(presence, {2, 1.5F}), 0);  // the prompt does not count
  EXPECT_EQ(draw(presence, {2, 1.5F}), 1);
  EXPECT_EQ(draw(presence, {2, 1.5F}), 0);  // both are present: once each
  EXPECT_EQ(draw(presence, {2, 1.5F}), 0);

  options.presence_penalty = 0;
  options.frequency_penalty = 1;
  Sampler frequency = make(options, 2);
  std::vector<int32_t> drawn;
  for (int i = 0; i < 4; ++i) drawn.push_back(draw(frequency, {2, 0.5F}));
  EXPECT_THAT(drawn, ElementsAre(0, 0, 1, 0));
}

TEST(Sampler, TheSequenceOfASeedIsFixed) {
  // splitmix64 and xoshiro256** computed apart, ⌊10·u⌋ of each number.
  SamplingOptions options;
  options.temperature = 1;
  const std::vector<float> uniform(10, 0.5F);
  const auto sequence = [&](uint64_t seed) {
    options.seed = seed;
    Sampler sampler = make(options, 10);
    std::vector<int32_t> ids;
    for (int i = 0; i < 12; ++i) ids.push_back(draw(sampler, uniform));
    sampler.reset();
    EXPECT_EQ(draw(sampler, uniform), ids[0]);
    return ids;
  };
  EXPECT_THAT(sequence(0), ElementsAre(6, 7, 1, 4, 7, 9, 4, 5, 8, 9, 1, 0));
  EXPECT_THAT(sequence(42), ElementsAre(0, 3, 6, 9, 9, 7, 7, 8, 7, 5, 6, 2));
}

TEST(Sampler, ResetForgetsWhatWasSeen) {
  SamplingOptions options;
  options.repetition_penalty = 4;
  Sampler sampler = make(options, 2);
  EXPECT_EQ(draw(sampler, {2, 1}), 0);
  EXPECT_EQ(draw(sampler, {2, 1}), 1);
  sampler.reset();
  EXPECT_EQ(draw(sampler, {2, 1}), 0);
}

TEST(Sampler, TinyTemperaturesDoNotOverflow) {
  SamplingOptions options;
  options.temperature = 1e-30F;
  Sampler sampler = make(options, 3);
  EXPECT_EQ(draw(sampler, {1000, 1001, -1000}), 1);
}

TEST(Sampler, RefusesLogitsThatAreNoNumbers) {
  Sampler sampler = make({}, 3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  auto result = sampler.sample(std::vector<float>{0, nan, 1});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::runtime);
  EXPECT_THAT(result.error().message, HasSubstr("token 1 is nan"));
  EXPECT_FALSE(sampler.sample(std::vector<float>{-infinity, -infinity, -infinity}));
  EXPECT_FALSE(sampler.sample(std::vector<float>{0, infinity, 0}));
  EXPECT_TRUE(sampler.sample(std::vector<float>{-infinity, 1, -infinity}));
}

struct BadOption {
  SamplingOptions options;
  const char* text;
};

TEST(Sampler, NamesTheOptionThatIsOutOfRange) {
  const auto with = [](auto member, auto value) {
    SamplingOptions options;
    options.*member = value;
    return options;
  };
  const std::vector<BadOption> cases = {
      {with(&SamplingOptions::temperature, -1.0F), "temperature must be at least 0, got -1"},
      {with(&SamplingOptions::top_k, -3), "top_k must be at least 0, got -3"},
      {with(&SamplingOptions::top_p, 0.0F), "top_p must be in (0, 1], got 0"},
      {with(&SamplingOptions::top_p, 1.5F), "top_p must be in (0, 1], got 1.5"},
      {with(&SamplingOptions::min_p, 2.0F), "min_p must be in [0, 1], got 2"},
      {with(&SamplingOptions::repetition_penalty, 0.0F), "repetition_penalty must be above 0, got 0"},
      {with(&SamplingOptions::presence_penalty, 3.0F), "presence_penalty must be in [-2, 2], got 3"},
      {with(&SamplingOptions::frequency_penalty, -3.0F), "frequency_penalty must be in [-2, 2], got -3"}};
  for (const BadOption& bad : cases) {
    const auto sampler = Sampler::create(bad.options, 8);
    ASSERT_FALSE(sampler) << bad.text;
    EXPECT_EQ(sampler.error().code, ErrorCode::usage);
    EXPECT_EQ(sampler.error().message, bad.text);
  }
  EXPECT_FALSE(Sampler::create({}, 0));
}

}  // namespace
}  // namespace hexlm
