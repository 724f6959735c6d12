#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluation/answer_score.hpp"
#include "evaluation/assignment.hpp"
#include "evaluation/statistics.hpp"

namespace hexlm {
namespace {

Json json_of(const char* text) { return *parse_json(text, "test"); }

TEST(Wilson, IsTheFormula) {
  // p = 0.9, n = 10: center (0.9 + 0.19207) / 1.38415, margin 1.96 · √(0.009 + 0.0096) / 1.38415.
  const Rate rate = wilson(9, 10);
  EXPECT_NEAR(rate.low, 0.5958, 1e-4);
  EXPECT_NEAR(rate.high, 0.9821, 1e-4);
  EXPECT_NEAR(wilson(60, 60).low, 60 / (60 + 3.841459), 1e-6);
  EXPECT_DOUBLE_EQ(wilson(60, 60).high, 1);
  EXPECT_EQ(wilson(0, 0).low, 0);
  EXPECT_EQ(wilson(0, 0).high, 1);
}

TEST(McNemar, IsTheBinomialTest) {
  EXPECT_EQ(mcnemar(0, 0), 1);
  EXPECT_NEAR(mcnemar(0, 6), 2 * std::pow(0.5, 6), 1e-12);
  EXPECT_NEAR(mcnemar(6, 0), 2 * std::pow(0.5, 6), 1e-12);
  EXPECT_NEAR(mcnemar(2, 8), 2 * (1 + 10 + 45) / 1024.0, 1e-12);
  EXPECT_EQ(mcnemar(5, 5), 1);
  EXPECT_LT(mcnemar(300, 600), 1e-20);
}

TEST(Quantile, Interpolates) {
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({1, 2}, 0.5), 1.5);
  EXPECT_EQ(quantile({0, 10}, 0.99), 9.9);
  EXPECT_EQ(quantile({}, 0.5), 0);
  EXPECT_TRUE(std::isnan(quantile({1, std::nan(""), 2}, 0.5)));
  EXPECT_NEAR(robust_deviation(std::vector<double>{1, 2, 3, 4, 100}), 1.4826, 1e-12);
}

TEST(Assignment, FindsTheBestSum) {
  // Taking the largest first (row 0 with column 0) would leave 0 for row 1.
  EXPECT_THAT(best_assignment({{5, 4}, {4, 0}}, 2), testing::ElementsAre(1, 0));
  EXPECT_THAT(best_assignment({{1, 9, 3}}, 3), testing::ElementsAre(1));
  EXPECT_THAT(best_assignment({{1}, {2}, {3}}, 1), testing::ElementsAre(-1, -1, 0));
  EXPECT_TRUE(best_assignment({}, 4).empty());
}

TEST(Assignment, AgreesWithTryingAll) {
  uint32_t seed = 1;
  const auto next = [&seed] { return (seed = seed * 1664525U + 1013904223U) >> 24U; };
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<double>> gain(4, std::vector<double>(4));
    for (auto& row : gain) {
      for (double& value : row) value = next() % 10;
    }
    std::vector<int> order = {0, 1, 2, 3};
    double best = 0;
    do {
      double sum = 0;
      for (size_t i = 0; i < 4; ++i) sum += gain[i][static_cast<size_t>(order[i])];
      best = std::max(best, sum);
    } while (std::next_permutation(order.begin(), order.end()));
    const std::vector<int> found = best_assignment(gain, 4);
    double sum = 0;
    for (size_t i = 0; i < 4; ++i) sum += gain[i][static_cast<size_t>(found[i])];
    EXPECT_EQ(sum, best);
  }
}

TEST(ScoreJson, CountsFields) {
  const Json expected = json_of(R"({"name": "Li", "count": 3, "city": "Oslo", "paid": true})");
  const JsonScore score =
      score_json(expected, json_of(R"({"name": "Li", "count": "3", "paid": false, "x": 1})"));
  EXPECT_EQ(score.total.expected, 4);
  EXPECT_EQ(score.total.answered, 4);
  EXPECT_EQ(score.total.correct, 1);
  EXPECT_EQ(score.total.missing, 1);
  EXPECT_EQ(score.total.wrong_type, 1);
  EXPECT_EQ(score.total.extra, 1);
  EXPECT_EQ(score.fields.at("city").missing, 1);
  EXPECT_EQ(score.fields.at("count").wrong_type, 1);
  EXPECT_FALSE(score.exact());
  EXPECT_TRUE(
      score_json(expected, json_of(R"({"paid":true,"city":"Oslo","count":3.0,"name":"Li"})")).exact());
}

TEST(ScoreJson, PairsListsInAnyOrder) {
  const Json expected = json_of(R"({"objects": [{"c": "red", "s": "star"}, {"c": "blue", "s": "dot"}]})");
  JsonScore score =
      score_json(expected, json_of(R"({"objects": [{"c": "blue", "s": "dot"}, {"c": "red", "s": "star"}]})"));
  EXPECT_TRUE(score.exact());
  EXPECT_EQ(score.objects_matched, 2);
  score = score_json(expected, json_of(R"({"objects": [{"c": "blue", "s": "star"}, {"c": "red", "s": "star"},
                                                       {"c": "green", "s": "dot"}]})"));
  EXPECT_EQ(score.objects_expected, 2);
  EXPECT_EQ(score.objects_answered, 3);
  EXPECT_EQ(score.objects_matched, 1);
  EXPECT_EQ(score.fields.at("objects[].c").expected, 2);
  EXPECT_EQ(score.total.correct, 3);
  EXPECT_EQ(score.total.extra, 2);
  score = score_json(expected, json_of(R"({"objects": []})"));
  EXPECT_EQ(score.total.missing, 4);
  EXPECT_FALSE(score.exact());
}

TEST(ScoreJson, OfOtherShapesIsWrongAndCountedOnce) {
  const Json expected = json_of(R"({"list": [{"a": 1}], "leaf": 2})");
  const JsonScore score = score_json(expected, json_of(R"({"list": "none", "leaf": {"b": 1, "c": 2}})"));
  EXPECT_EQ(score.total.expected, 2);
  EXPECT_EQ(score.total.correct, 0);
  EXPECT_EQ(score.total.missing, 1);
  EXPECT_EQ(score.total.wrong_type, 2);
  EXPECT_EQ(score.total.extra, 3);
  EXPECT_FALSE(score_json(json_of("[]"), json_of("[1]")).exact());
  EXPECT_FALSE(score_json(json_of(R"({"a":1})"), json_of(R"({"a":1,"b":{}})")).exact());
  EXPECT_TRUE(score_json(json_of(R"({"a":[]})"), json_of(R"({"a":[]})")).exact());
  EXPECT_EQ(score_missing(expected).total.missing, 2);
}

TEST(ParseAnswer, TakesWholeAnswersOnly) {
  EXPECT_TRUE(parse_answer(" {\"a\": 1}\n"));
  EXPECT_TRUE(parse_answer("```json\n{\"a\": 1}\n```"));
  EXPECT_TRUE(parse_answer("<think>\nhm {\n</think>\n\n{\"a\": 1}"));
  EXPECT_FALSE(parse_answer("Here it is: {\"a\": 1}"));
  EXPECT_FALSE(parse_answer("{\"a\": 1"));
  EXPECT_FALSE(parse_answer("```"));
  EXPECT_FALSE(parse_answer(""));
  EXPECT_TRUE(holds_json("Here it is: {\"a\": {\"b\": 1}} as asked"));
  EXPECT_FALSE(holds_json("Here {it} is"));
}

TEST(ScoreText, HasThreeStrengths) {
  EXPECT_TRUE(score_text("Paris", " Paris\n").exact);
  const TextScore normalized = score_text("New York", "new  york.");
  EXPECT_FALSE(normalized.exact);
  EXPECT_TRUE(normalized.normalized);
  const TextScore contains = score_text("Zürich", "It is ZÜRICH, of course");
  EXPECT_FALSE(contains.normalized);
  EXPECT_TRUE(contains.contains);
  EXPECT_FALSE(score_text("art", "a party").contains);
  EXPECT_FALSE(score_text("?", "no").contains);
  EXPECT_EQ(normalize_answer("  Ça, va?  好!"), "ça va 好");
}

}  // namespace
}  // namespace hexlm
