#include "evaluation/bench.hpp"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluation/bench_images.hpp"
#include "runtime/tiny_model.hpp"

namespace hexlm {
namespace {

std::vector<std::string> names(const BenchResult& result) {
  std::vector<std::string> all;
  for (const BenchRow& row : result.rows) all.push_back(row.name);
  return all;
}

TEST(Bench, MeasuresEveryCombination) {
  const auto session = open_session(open_tiny_model(), high_precision());
  ASSERT_TRUE(session);
  const auto result = bench(*session, {{16, 8}, {3}, {0, 10}, 3});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(names(*result), testing::ElementsAre("pp16", "pp8", "tg3", "pp16@d10", "pp8@d10", "tg3@d10"));
  EXPECT_GT(result->ttft_s, 0);
  for (const BenchRow& row : result->rows) {
    ASSERT_EQ(row.samples.size(), 3U);
    double sum = 0;
    for (const double sample : row.samples) {
      EXPECT_GT(sample, 0);
      sum += sample;
    }
    EXPECT_NEAR(row.mean, sum / 3, 1e-9 * row.mean);
    double squares = 0;
    for (const double sample : row.samples) squares += (sample - row.mean) * (sample - row.mean);
    EXPECT_NEAR(row.stddev, std::sqrt(squares / 2), 1e-6 * row.mean);
    EXPECT_EQ(testing::Matches(testing::Contains(row.median))(row.samples), true);
  }
}

TEST(Bench, ZeroStandsForNone) {
  const auto session = open_session(open_tiny_model(), high_precision());
  const auto result = bench(*session, {{0}, {2}, {0}, 1});
  ASSERT_TRUE(result);
  EXPECT_THAT(names(*result), testing::ElementsAre("tg2"));
  EXPECT_EQ(result->rows[0].stddev, 0);
}

TEST(Bench, MeasuresTheVisionTower) {
  const auto encoder = VisionEncoder::create(open_tiny_model(), {});
  ASSERT_TRUE(encoder) << encoder.error().message;
  const auto measured = bench_image(**encoder, {96, 64}, 2);
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_EQ(measured->row.name, "vision96x64");
  EXPECT_EQ(measured->row.unit, "images/s");
  EXPECT_EQ(measured->row.samples.size(), 2U);
  EXPECT_GT(measured->row.mean, 0);
  EXPECT_EQ(measured->tokens, 6);
  EXPECT_GT(measured->preprocess_s, 0);
  double seconds = 0;
  for (const double sample : measured->row.samples) seconds += 1 / sample / 2;
  EXPECT_NEAR(measured->tower_s, seconds, 1e-9);
  EXPECT_EQ(bench_image(**encoder, {96, 64}, 0).error().code, ErrorCode::usage);
  EXPECT_EQ(bench_image(**encoder, {0, 64}, 1).error().code, ErrorCode::usage);
  EXPECT_EQ(bench_image(**encoder, {1, 900}, 1).error().code, ErrorCode::bad_input);
  EXPECT_EQ(bench_image(**encoder, {1 << 20, 1 << 20}, 1).error().code, ErrorCode::limit);
}

TEST(Bench, RefusesWhatDoesNotFit) {
  SessionOptions options = high_precision();
  options.context = 32;
  const auto session = open_session(open_tiny_model(), options);
  EXPECT_EQ(bench(*session, {{20}, {4}, {16}, 1}).error().code, ErrorCode::limit);
  EXPECT_EQ(bench(*session, {{20}, {4}, {0}, 0}).error().code, ErrorCode::usage);
  EXPECT_EQ(bench(*session, {{-1}, {4}, {0}, 1}).error().code, ErrorCode::usage);
}

}  // namespace
}  // namespace hexlm
