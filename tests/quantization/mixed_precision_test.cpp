#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "quantization/bit_budget.hpp"
#include "quantization/export.hpp"
#include "quantization/recipe.hpp"
#include "support/temporary_folder.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

TEST(Recipe, SelectorsDescribeWholeNames) {
  EXPECT_TRUE(matches("layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(matches("layers.0.mlp.up_proj", "layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(matches("mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"));
  EXPECT_TRUE(matches("layers.*.q_proj.weight", "layers.11.self_attn.q_proj.weight"));
  EXPECT_TRUE(matches("*", "norm.weight"));
  EXPECT_TRUE(matches("*a*b", "xaab"));
  EXPECT_FALSE(matches("*a*b", "xaabc"));
  EXPECT_FALSE(matches("ab*ba", "aba"));
}

Result<ExportPlan> plan_with(const std::string& recipe) {
  const TemporaryFolder folder;
  write_test_file(folder.file("recipe.json"), recipe);
  ExportOptions options;
  options.checkpoint = test_data("reference/qwen2_tied/checkpoint");
  HEXLM_ASSIGN(options.recipe, read_recipe(folder.file("recipe.json")));
  return plan_export(options);
}

TEST(Recipe, LaterRulesCount) {
  const auto plan = plan_with(R"({"rules": [{"tensors": "layers.*_proj.weight", "codec": "w8g32"},
      {"tensors": ["layers.*.q_proj.weight", "layers.1.self_attn.v_proj.weight"], "codec": "f16"}]})");
  ASSERT_TRUE(plan) << plan.error().message;
  for (const ExportTensor& tensor : plan->tensors) {
    if (tensor.role != ParameterRole::linear) continue;
    const bool is_float =
        tensor.name.find("q_proj") != std::string::npos || tensor.name == "layers.1.self_attn.v_proj.weight";
    EXPECT_EQ(to_string(tensor.codec), is_float ? "f16" : "w8g32") << tensor.name;
  }
}

TEST(Recipe, RefusesWhatMatchesNothingOrAVector) {
  EXPECT_THAT(
      plan_with(R"({"rules": [{"tensors": "layers.0.mlp.upproj.weight", "codec": "w8"}]})").error().hint,
      HasSubstr("layers.0.mlp.up_proj.weight"));
  EXPECT_THAT(plan_with(R"({"rules": [{"tensors": "norm.weight", "codec": "w8"}]})").error().message,
              HasSubstr("matches the vector 'norm.weight'"));
  EXPECT_THAT(plan_with(R"({"rules": [{"tensors": "*", "codec": "w9"}]})").error().message,
              HasSubstr("rule 1"));
  EXPECT_THAT(plan_with(R"({"rules": [{"tensors": "*", "codec": "w8", "bits": 3}]})").error().message,
              HasSubstr("'bits'"));
  EXPECT_THAT(plan_with(R"({"rules": [{"codec": "w8"}]})").error().message, HasSubstr("tensors"));
  EXPECT_THAT(plan_with("[]").error().message, HasSubstr("\"rules\""));
}

TEST(BitBudget, FindsTheLeastDamageWithinTheBudget) {
  std::vector<BitChoice> choices(4);
  for (size_t i = 0; i < choices.size(); ++i) {
    for (const int bits : {2, 3, 4, 8}) {
      BitOption option;
      option.bits = static_cast<uint64_t>(bits) * 1000 * (i + 1);
      option.damage = static_cast<double>(7 * i % 4 + 1) / (bits * bits * bits);
      choices[i].options.push_back(option);
    }
  }
  const uint64_t budget = 41000;
  double least = std::numeric_limits<double>::infinity();
  for (int code = 0; code < 256; ++code) {
    uint64_t bits = 0;
    double damage = 0;
    for (size_t i = 0; i < 4; ++i) {
      const BitOption& option = choices[i].options[static_cast<size_t>(code >> (2 * i) & 3)];
      bits += option.bits;
      damage += option.damage;
    }
    // The program works in 8192th parts of the budget, rounded up.
    if (bits + 4 * budget / 8192 <= budget) least = std::min(least, damage);
  }
  ASSERT_TRUE(choose_options(choices, budget));
  uint64_t bits = 0;
  double damage = 0;
  for (const BitChoice& choice : choices) {
    bits += choice.options[choice.chosen].bits;
    damage += choice.options[choice.chosen].damage;
  }
  EXPECT_LE(bits, budget);
  EXPECT_LE(damage, least);
  EXPECT_FALSE(choose_options(choices, 19000));  // 2 bits of all take 20000
}

}  // namespace
}  // namespace hexlm
