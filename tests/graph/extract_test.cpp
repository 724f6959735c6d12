#include "graph/extract.hpp"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hexlm {
namespace {

/// x -> a = x + x -> b = norm(a) -> c = a + b
Graph chain() {
  GraphBuilder builder;
  const ValueId x = builder.input("x", DType::f32, {tokens_dim, dim(8)});
  const ValueId a = builder.add("a", op::Add{}, {x, x});
  const ParameterId weight = builder.parameter("norm.weight", {8}, ParameterRole::vector);
  const ValueId b = builder.add("b", op::RmsNorm{}, {a}, {weight});
  builder.output(builder.add("c", op::Add{}, {a, b}));
  return *std::move(builder).build();
}

ValueId value_named(const Graph& graph, const std::string& name) {
  for (size_t i = 0; i < graph.values().size(); ++i) {
    if (graph.values()[i].name == name) return {static_cast<int32_t>(i)};
  }
  return {};
}

TEST(Extract, TakesOnlyWhatLiesBetween) {
  const Graph graph = chain();
  const auto part = extract(graph, std::array{value_named(graph, "a")}, std::array{value_named(graph, "b")});
  ASSERT_TRUE(part) << part.error().message;
  ASSERT_EQ(part->nodes().size(), 1U);
  EXPECT_EQ(part->nodes()[0].name, "b");
  ASSERT_EQ(part->inputs().size(), 1U);
  EXPECT_EQ(part->value(part->inputs()[0]).name, "a");
  EXPECT_EQ(part->parameters().size(), 1U);
}

TEST(Extract, AddsTheInputsThatAreStillNeeded) {
  const Graph graph = chain();
  const auto part = extract(graph, std::array{value_named(graph, "b")}, std::array{value_named(graph, "c")});
  ASSERT_TRUE(part) << part.error().message;
  ASSERT_EQ(part->inputs().size(), 2U);
  EXPECT_EQ(part->value(part->inputs()[0]).name, "b");
  EXPECT_EQ(part->value(part->inputs()[1]).name, "x");
  EXPECT_EQ(part->nodes().size(), 2U);
  EXPECT_TRUE(part->parameters().empty());
}

TEST(Extract, RefusesAnEmptyPart) {
  const Graph graph = chain();
  const auto same = extract(graph, std::array{value_named(graph, "b")}, std::array{value_named(graph, "b")});
  ASSERT_FALSE(same);
  EXPECT_THAT(same.error().message, testing::HasSubstr("'b' would be empty"));
  EXPECT_FALSE(extract(graph, {}, std::array{value_named(graph, "x")}));
}

}  // namespace
}  // namespace hexlm
