#include "evaluation/bisect.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hexlm {
namespace {

using testing::ElementsAre;

const std::vector<std::string> six_settings = {"backend", "bits", "chunk", "method", "precision", "template"};

Configuration every(const std::string& value) {
  Configuration configuration;
  for (const std::string& name : six_settings) configuration[name] = value;
  return configuration;
}

TEST(Bisect, FindsEachOfSixCauses) {
  for (const std::string& cause : six_settings) {
    int64_t calls = 0;
    const auto measure = [&](const Configuration& configuration) -> Result<double> {
      ++calls;
      double score = 1;
      for (const auto& [name, value] : configuration) {
        if (value == "new") score -= name == cause ? 0.7 : 0.02;
      }
      return score;
    };
    const auto result = bisect(every("old"), every("new"), std::nullopt, measure);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_THAT(result->culprits(), ElementsAre(cause));
    EXPECT_EQ(result->measured, calls);
    EXPECT_EQ(calls, 2 + 6 + 1);
    for (const BisectVariable& variable : result->variables) {
      EXPECT_EQ(variable.reverted.has_value(), variable.name == cause);
      if (variable.reverted) {
        EXPECT_NEAR(*variable.reverted, 0.9, 1e-12);
      }
    }
  }
}

TEST(Bisect, FindsChangesThatBreakTogether) {
  const auto measure = [](const Configuration& configuration) -> Result<double> {
    return configuration.at("bits") == "new" && configuration.at("method") == "new" ? 0 : 1;
  };
  const auto result = bisect(every("old"), every("new"), std::nullopt, measure);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->culprits().empty());
  EXPECT_THAT(result->together, ElementsAre("backend", "bits", "chunk", "method"));
}

TEST(Bisect, TreatsAbsentVariablesAsDefaults) {
  const auto measure = [](const Configuration& configuration) -> Result<double> {
    return configuration.contains("bits") ? 0 : 1;
  };
  const auto result = bisect({{"model", "m"}}, {{"model", "m"}, {"bits", "2"}}, 0.5, measure);
  ASSERT_TRUE(result);
  ASSERT_EQ(result->variables.size(), 1U);
  EXPECT_EQ(result->variables[0].good, "");
  EXPECT_EQ(result->variables[0].reverted, 1);
}

TEST(Bisect, SaysWhenThereIsNothingToFind) {
  const auto constant = [](const Configuration&) -> Result<double> { return 1; };
  EXPECT_EQ(bisect({{"a", "1"}}, {{"a", "1"}}, std::nullopt, constant).error().code, ErrorCode::usage);
  EXPECT_EQ(bisect({{"a", "1"}}, {{"a", "2"}}, std::nullopt, constant).error().code, ErrorCode::verification);
  const auto failing = [](const Configuration&) -> Result<double> {
    return fail(ErrorCode::bad_input, "no model");
  };
  EXPECT_EQ(bisect({{"a", "1"}}, {{"a", "2"}}, std::nullopt, failing).error().message, "no model");
}

}  // namespace
}  // namespace hexlm
