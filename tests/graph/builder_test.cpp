#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "sample_graphs.hpp"

namespace hexlm {
namespace {

using ::testing::HasSubstr;

/// What building says after `mistake` was made in an otherwise fine graph.
std::string error_of(const std::function<void(GraphBuilder&, ValueId x, const SampleInputs&)>& mistake) {
  GraphBuilder g;
  const SampleInputs in(g);
  const ValueId x =
      g.add("embed", op::Embedding{}, {in.ids}, {g.parameter("table", {16, 8}, ParameterRole::embedding)});
  mistake(g, x, in);
  g.output(x);
  auto graph = std::move(g).build();
  if (graph) return "no error";
  EXPECT_EQ(graph.error().code, ErrorCode::runtime);
  return graph.error().message;
}

ParameterId matrix(GraphBuilder& g, int64_t rows, int64_t columns) {
  return g.parameter("w", {rows, columns}, ParameterRole::linear);
}

TEST(GraphBuilder, BuildsEveryOp) {
  auto graph = every_op();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(graph->nodes().size(), 22U);
  EXPECT_EQ(graph->inputs().size(), 3U);
  EXPECT_EQ(graph->outputs().size(), 1U);
  EXPECT_EQ(graph->hidden().size(), 2U);
  EXPECT_EQ(to_string(graph->value(graph->outputs()[0]).shape), "[R, 16]");
}

TEST(GraphBuilder, FindsParametersByName) {
  auto graph = every_op();
  ASSERT_TRUE(graph) << graph.error().message;
  const ParameterId id = graph->find_parameter("e1.down");
  ASSERT_GE(id.index, 0);
  EXPECT_EQ(graph->parameter(id).shape, (std::vector<int64_t>{8, 6}));
  EXPECT_EQ(graph->find_parameter("e1").index, -1);
}

TEST(GraphBuilder, SharesParametersDeclaredTwice) {
  GraphBuilder g;
  const ParameterId first = g.parameter("w", {4, 8}, ParameterRole::embedding);
  EXPECT_EQ(g.parameter("w", {4, 8}, ParameterRole::lm_head), first);
  EXPECT_EQ(g.parameter("v", {4, 8}, ParameterRole::linear).index, first.index + 1);
  // The second shape is a mistake.
  EXPECT_EQ(g.parameter("w", {8, 4}, ParameterRole::embedding).index, -1);
  auto graph = std::move(g).build();
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("'w': expected the shape declared first, [4, 8], got [8, 4]"));
}

TEST(GraphBuilder, KeepsTheFirstMistake) {
  GraphBuilder g;
  const SampleInputs in(g);
  const ValueId none = g.add("first", op::Linear{}, {in.ids}, {matrix(g, 4, 8)});
  EXPECT_EQ(none.index, -1);
  EXPECT_TRUE(g.value(none).shape.empty());
  g.add("second", op::Add{}, {none, none});
  g.output(none);
  auto graph = std::move(g).build();
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("'first'"));
}

struct Mistake {
  const char* name;
  std::function<void(GraphBuilder&, ValueId x, const SampleInputs&)> make;
  const char* message;
};

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreNamed) { EXPECT_THAT(error_of(GetParam().make), HasSubstr(GetParam().message)); }

const Mistake mistakes[] = {
    {"TooFewInputs", [](auto& g, ValueId x, auto&) { g.add("n", op::Add{}, {x}); },
     "'n': add: expected 2 inputs, got 1"},
    {"TooManyParameters",
     [](auto& g, ValueId x, auto&) {
       g.add("n", op::Linear{}, {x}, {matrix(g, 4, 8), matrix(g, 4, 8), matrix(g, 4, 8)});
     },
     "'n': linear: expected 1 to 2 parameters, got 3"},
    {"MissingParameter", [](auto& g, ValueId x, auto&) { g.add("n", op::RmsNorm{}, {x}); },
     "expected 1 parameters, got 0"},
    {"MissingState",
     [](auto& g, ValueId x, auto&) {
       g.add("n", op::CausalConvolution{3}, {x}, {g.parameter("w", {8, 1, 3}, ParameterRole::vector)});
     },
     "expected a state, got none"},
    {"UnwantedState",
     [](auto& g, ValueId x, auto&) {
       g.add("n", op::Add{}, {x, x}, {}, g.state("s", State::Kind::convolution, {8, 2}));
     },
     "expected no state, got one"},
    {"WrongStateKind",
     [](auto& g, ValueId x, auto&) {
       g.add("n", op::CausalConvolution{3}, {x}, {g.parameter("w", {8, 1, 3}, ParameterRole::vector)},
             g.state("s", State::Kind::delta_net, {8, 2}));
     },
     "state 's': expected convolution [8, 2], got delta_net [8, 2]"},
    {"WrongStateSize",
     [](auto& g, ValueId x, auto&) {
       g.add("n", op::CausalConvolution{3}, {x}, {g.parameter("w", {8, 1, 3}, ParameterRole::vector)},
             g.state("s", State::Kind::convolution, {8, 3}));
     },
     "expected convolution [8, 2], got convolution [8, 3]"},
    {"LinearColumns", [](auto& g, ValueId x, auto&) { g.add("n", op::Linear{}, {x}, {matrix(g, 4, 7)}); },
     "parameter 'w': expected [4, 8], got [4, 7]"},
    {"LinearBias",
     [](auto& g, ValueId x, auto&) {
       g.add("n", op::Linear{}, {x}, {matrix(g, 4, 8), g.parameter("b", {5}, ParameterRole::vector)});
     },
     "parameter 'b': expected [4], got [5]"},
    {"LinearOfIds", [](auto& g, ValueId, auto& in) { g.add("n", op::Linear{}, {in.ids}, {matrix(g, 4, 8)}); },
     "input 0 'ids': expected F32 of at least 1 dimensions, got I32 [T]"},
    {"EmbeddingOfFloats",
     [](auto& g, ValueId x, auto&) { g.add("n", op::Embedding{}, {x}, {matrix(g, 4, 8)}); },
     "input 0 'embed': expected I32"},
    {"EmbeddingTableRank",
     [](auto& g, ValueId, auto& in) {
       g.add("n", op::Embedding{}, {in.ids}, {g.parameter("v", {8}, ParameterRole::vector)});
     },
     "parameter 'v': expected 2 dimensions, got [8]"},
    {"NormWidth",
     [](auto& g, ValueId x, auto&) {
       g.add("n", op::RmsNorm{}, {x}, {g.parameter("v", {4}, ParameterRole::vector)});
     },
     "parameter 'v': expected [8], got [4]"},
    {"NormEpsilon",
     [](auto& g, ValueId x, auto&) {
       g.add("n", op::RmsNorm{0, 0}, {x}, {g.parameter("v", {8}, ParameterRole::vector)});
     },
     "expected a positive epsilon, got 0"},
    {"GatedNormGate",
     [](auto& g, ValueId x, auto&) {
       const ValueId half = g.add("half", op::Slice{0, 4}, {x});
       g.add("n", op::GatedRmsNorm{}, {x, half}, {g.parameter("v", {8}, ParameterRole::vector)});
     },
     "input 1 'half': expected F32 [T, 8], got F32 [T, 4]"},
    {"ReshapeElements",
     [](auto& g, ValueId x, auto&) { g.add("n", op::Reshape{{tokens_dim, dim(2), dim(5)}}, {x}); },
     "expected a shape with the elements of [T, 8], got [T, 2, 5]"},
    {"ReshapeSymbol", [](auto& g, ValueId x, auto&) { g.add("n", op::Reshape{{rows_dim, dim(8)}}, {x}); },
     "expected a shape with the elements of [T, 8], got [R, 8]"},
    {"ReshapeNegative",
     [](auto& g, ValueId x, auto&) { g.add("n", op::Reshape{{tokens_dim, dim(-2), dim(-4)}}, {x}); },
     "expected positive dimensions, got [T, -2, -4]"},
    {"ReshapeOverflow",
     [](auto& g, ValueId x, auto&) {
       g.add("n", op::Reshape{{tokens_dim, dim(int64_t{1} << 62), dim(16)}}, {x});
     },
     "expected a shape with the elements of [T, 8]"},
    {"SliceEnd", [](auto& g, ValueId x, auto&) { g.add("n", op::Slice{4, 9}, {x}); },
     "expected 0 <= begin < end <= 8, got begin 4 end 9"},
    {"SliceEmpty", [](auto& g, ValueId x, auto&) { g.add("n", op::Slice{4, 4}, {x}); }, "got begin 4 end 4"},
    {"AddShapes",
     [](auto& g, ValueId x, auto&) { g.add("n", op::Add{}, {x, g.add("half", op::Slice{0, 4}, {x})}); },
     "input 1 'half': expected F32 [T, 8], got F32 [T, 4]"},
    {"RopeRank", [](auto& g, ValueId x, auto& in) { g.add("n", op::Rope{}, {x, in.positions}); },
     "input 0 'embed': expected F32 of 3 dimensions, got F32 [T, 8]"},
    {"RopePositions",
     [](auto& g, ValueId x, auto& in) {
       const ValueId heads = g.add("heads", op::Reshape{{tokens_dim, dim(2), dim(4)}}, {x});
       g.add("n", op::Rope{4, {1, 1}, {0, 0}, 1}, {heads, in.ids});
     },
     "input 1 'ids': expected I32 [3, T], got I32 [T]"},
    {"RopeOdd",
     [](auto& g, ValueId x, auto& in) {
       const ValueId heads = g.add("heads", op::Reshape{{tokens_dim, dim(2), dim(4)}}, {x});
       g.add("n", op::Rope{3, {1}, {0}, 1}, {heads, in.positions});
     },
     "expected an even rotary_dim of 2 to 4, got 3"},
    {"RopeFrequencies",
     [](auto& g, ValueId x, auto& in) {
       const ValueId heads = g.add("heads", op::Reshape{{tokens_dim, dim(2), dim(4)}}, {x});
       g.add("n", op::Rope{4, {1}, {0, 0}, 1}, {heads, in.positions});
     },
     "expected 2 inverse frequencies and position streams, got 1 and 2"},
    {"RopeStream",
     [](auto& g, ValueId x, auto& in) {
       const ValueId heads = g.add("heads", op::Reshape{{tokens_dim, dim(2), dim(4)}}, {x});
       g.add("n", op::Rope{4, {1, 1}, {0, 3}, 1}, {heads, in.positions});
     },
     "expected a finite frequency and a stream of 0 to 2 at 1, got 1 and 3"},
    {"AttentionHeads",
     [](auto& g, ValueId x, auto&) {
       const ValueId heads = g.add("heads", op::Reshape{{tokens_dim, dim(2), dim(4)}}, {x});
       g.add("n", op::Attention{3, 2, 4, 1}, {heads, heads, heads}, {},
             g.state("s", State::Kind::key_value_cache, {2, 4}));
     },
     "expected query_heads to be a multiple of key_value_heads, got 3 and 2"},
    {"AttentionKey",
     [](auto& g, ValueId x, auto&) {
       const ValueId heads = g.add("heads", op::Reshape{{tokens_dim, dim(2), dim(4)}}, {x});
       g.add("n", op::Attention{2, 1, 4, 1}, {heads, heads, heads}, {},
             g.state("s", State::Kind::key_value_cache, {1, 4}));
     },
     "input 1 'heads': expected F32 [T, 1, 4], got F32 [T, 2, 4]"},
    {"DeltaNetChannels",
     [](auto& g, ValueId x, auto&) {
       const ParameterId v = g.parameter("v", {2}, ParameterRole::vector);
       g.add("n", op::GatedDeltaNet{1, 2, 4, 2}, {x, x, x}, {v, v},
             g.state("s", State::Kind::delta_net, {2, 4, 2}));
     },
     "input 0 'embed': expected F32 [T, 12], got F32 [T, 8]"},
    {"DeltaNetHeads",
     [](auto& g, ValueId x, auto&) {
       const ParameterId v = g.parameter("v", {3}, ParameterRole::vector);
       g.add("n", op::GatedDeltaNet{2, 3, 2, 2}, {x, x, x}, {v, v},
             g.state("s", State::Kind::delta_net, {3, 2, 2}));
     },
     "value_heads a multiple of key_heads, got key_heads 2 value_heads 3"},
    {"ExpertsTopK",
     [](auto& g, ValueId x, auto&) { g.add("n", op::MixtureOfExperts{2, 3, 6, true}, {x, x}); },
     "0 < top_k <= experts"},
    {"ExpertsMatrices",
     [](auto& g, ValueId x, auto&) {
       g.add("n", op::MixtureOfExperts{2, 1, 6, true}, {x, x}, {matrix(g, 6, 8), matrix(g, 6, 8)});
     },
     "expected 6 parameters, got 2"},
    {"ExpertsRouter",
     [](auto& g, ValueId x, auto&) {
       const ParameterId up = matrix(g, 6, 8);
       const ParameterId down = g.parameter("d", {8, 6}, ParameterRole::linear);
       g.add("n", op::MixtureOfExperts{2, 1, 6, true}, {x, x}, {up, up, down, up, up, down});
     },
     "input 1 'embed': expected F32 [T, 2], got F32 [T, 8]"},
    {"GatherRowsIndices", [](auto& g, ValueId x, auto&) { g.add("n", op::GatherRows{}, {x, x}); },
     "input 1 'embed': expected I32"},
    {"ReplaceRowsIndex",
     [](auto& g, ValueId x, auto& in) {
       const ValueId rows = g.input("image", DType::f32, {patches_dim, dim(8)});
       g.add("n", op::ReplaceRows{}, {x, rows, in.rows});
     },
     "input 2 'rows': expected I32 [T]"},
    {"AddRowsWidth",
     [](auto& g, ValueId x, auto& in) {
       const ValueId rows = g.input("image", DType::f32, {patches_dim, dim(9)});
       g.add("n", op::AddRows{}, {x, rows, in.ids});
     },
     "input 1 'image': expected F32 [V, 8], got F32 [V, 9]"},
    {"LayerNormBias",
     [](auto& g, ValueId x, auto&) {
       const ParameterId weight = g.parameter("w", {8}, ParameterRole::vector);
       const ParameterId bias = g.parameter("b", {7}, ParameterRole::vector);
       g.add("n", op::LayerNorm{}, {x}, {weight, bias});
     },
     "parameter 'b': expected [8], got [7]"},
    {"GeluParameters", [](auto& g, ValueId x, auto&) { g.add("n", op::Gelu{}, {x}, {matrix(g, 6, 8)}); },
     "expected 0 parameters, got 1"},
    {"LinearConvolution",
     [](auto& g, ValueId x, auto&) {
       g.add("n", op::Linear{}, {x}, {g.parameter("c", {5, 3, 1, 2}, ParameterRole::vision)});
     },
     "parameter 'c': expected rows of 8 elements, got [5, 3, 1, 2]"},
    {"InterpolateRowsWeights",
     [](auto& g, ValueId, auto&) {
       const ValueId index = g.input("index", DType::i32, {dim(4), patches_dim});
       const ValueId weight = g.input("weight", DType::f32, {dim(3), patches_dim});
       g.add("n", op::InterpolateRows{}, {index, weight}, {matrix(g, 6, 8)});
     },
     "input 1 'weight': expected F32 [4, V], got F32 [3, V]"},
    {"PatchAttentionWidth",
     [](auto& g, ValueId x, auto& in) { g.add("n", op::PatchAttention{2, 4, 1}, {x, x, x, in.positions}); },
     "input 0 'embed': expected F32 [T, 24], got F32 [T, 8]"},
    {"PatchAttentionRanges",
     [](auto& g, ValueId, auto&) {
       const ValueId qkv = g.input("qkv", DType::f32, {patches_dim, dim(24)});
       const ValueId angles = g.input("angles", DType::f32, {patches_dim, dim(2)});
       const ValueId ranges = g.input("ranges", DType::i32, {dim(3), patches_dim});
       g.add("n", op::PatchAttention{2, 4, 1}, {qkv, angles, angles, ranges});
     },
     "input 3 'ranges': expected I32 [2, V], got I32 [3, V]"},
    {"UnknownValue", [](auto& g, ValueId x, auto&) { g.add("n", op::Add{}, {x, ValueId{99}}); },
     "'n': expected an existing value as input, got index 99"},
    {"UnknownParameter", [](auto& g, ValueId x, auto&) { g.add("n", op::Linear{}, {x}, {ParameterId{7}}); },
     "'n': expected an existing parameter, got index 7"},
    {"UnknownState",
     [](auto& g, ValueId x, auto&) { g.add("n", op::Attention{}, {x, x, x}, {}, StateId{3}); },
     "'n': expected an existing state, got index 3"},
    {"UnknownHidden", [](auto& g, ValueId, auto&) { g.mark_hidden(ValueId{-1}); },
     "expected an existing value, got index -1"},
    {"UnknownOutput", [](auto& g, ValueId, auto&) { g.output(ValueId{50}); },
     "expected an existing value, got index 50"},
    {"EmptyParameter", [](auto& g, ValueId, auto&) { g.parameter("p", {4, 0}, ParameterRole::linear); },
     "'p': expected a parameter of positive dimensions, got [4, 0]"},
    {"EmptyState", [](auto& g, ValueId, auto&) { g.state("s", State::Kind::convolution, {8, 0}); },
     "'s': expected a state of positive dimensions, got [8, 0]"},
    {"EmptyInput", [](auto& g, ValueId, auto&) { g.input("i", DType::i32, {}); },
     "'i': expected an input of positive dimensions, got []"},
};

INSTANTIATE_TEST_SUITE_P(GraphBuilder, Mistakes, ::testing::ValuesIn(mistakes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hexlm
