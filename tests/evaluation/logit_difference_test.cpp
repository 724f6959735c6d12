#include "evaluation/logit_difference.hpp"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace hexlm {
namespace {

std::vector<float> logs(const std::vector<double>& probabilities, double offset) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + offset));
  return logits;
}

TEST(LogitDifference, OfEqualLogitsIsZero) {
  LogitDifference difference;
  const std::vector<float> logits = {1, -2, 3};
  difference.add(logits, logits);
  EXPECT_EQ(difference.relative_error(), 0);
  EXPECT_NEAR(difference.kl_mean(), 0, 1e-12);
  EXPECT_EQ(difference.top1_agreement(), 1);
  EXPECT_TRUE(difference.finite());
}

TEST(LogitDifference, MatchesTheFormulas) {
  LogitDifference difference;
  // KL of (0.5, 0.5) and (0.25, 0.75), whatever offset the logits have.
  difference.add(logs({0.5, 0.5}, 0), logs({0.25, 0.75}, 3));
  EXPECT_NEAR(difference.kl_mean(), 0.5 * std::log(2.0) + 0.5 * std::log(0.5 / 0.75), 1e-6);
  LogitDifference rows;
  rows.add(std::vector<float>{3, 4}, std::vector<float>{3, 4});
  rows.add(std::vector<float>{0, 5}, std::vector<float>{5, 0});
  EXPECT_NEAR(rows.relative_error(), std::sqrt(50.0 / 50.0), 1e-12);
  EXPECT_EQ(rows.top1_agreement(), 0.5);
  EXPECT_EQ(rows.rows(), 2);
}

TEST(LogitDifference, SeesWhatIsNoNumber) {
  LogitDifference difference;
  difference.add(std::vector<float>{1, 2}, std::vector<float>{1, std::numeric_limits<float>::infinity()});
  EXPECT_FALSE(difference.finite());
}

}  // namespace
}  // namespace hexlm
