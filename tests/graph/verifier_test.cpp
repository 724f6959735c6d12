#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "sample_graphs.hpp"

namespace hexlm {
namespace {

using ::testing::HasSubstr;
using Access = GraphTestAccess;

Node& node(Graph& graph, std::string_view name) {
  for (Node& candidate : Access::nodes(graph)) {
    if (candidate.name == name) return candidate;
  }
  ADD_FAILURE() << "no node " << name;
  return Access::nodes(graph).front();
}

Value& output_of(Graph& graph, std::string_view name) {
  return Access::values(graph)[static_cast<size_t>(node(graph, name).output.index)];
}

TEST(Verifier, AcceptsWhatTheBuilderMade) {
  auto graph = every_op();
  ASSERT_TRUE(graph) << graph.error().message;
  const Status status = verify(*graph);
  EXPECT_TRUE(status) << status.error().message;
}

TEST(Verifier, WantsUniqueNodeNames) {
  GraphBuilder g;
  const SampleInputs in(g);
  const ParameterId table = g.parameter("table", {16, 8}, ParameterRole::embedding);
  const ValueId x = g.add("same", op::Embedding{}, {in.ids}, {table});
  g.output(g.add("same", op::Add{}, {x, x}));
  auto graph = std::move(g).build();
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message, "graph verifier: node 'same': expected a unique name, got it twice");
}

TEST(Verifier, WantsAnOutput) {
  GraphBuilder g;
  const SampleInputs in(g);
  auto graph = std::move(g).build();
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("expected at least one output, got none"));
}

struct Corruption {
  const char* name;
  std::function<void(Graph&)> make;
  const char* message;
};

class Corruptions : public ::testing::TestWithParam<Corruption> {};

TEST_P(Corruptions, AreNamed) {
  auto graph = every_op();
  ASSERT_TRUE(graph) << graph.error().message;
  GetParam().make(*graph);
  const Status status = verify(*graph);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::runtime);
  EXPECT_THAT(status.error().message, HasSubstr(GetParam().message));
}

const Corruption corruptions[] = {
    {"InputOutOfRange", [](Graph& g) { node(g, "sum").inputs[1].index = 4000; },
     "node 'sum': expected an existing value as input, got index 4000"},
    {"NegativeInput", [](Graph& g) { node(g, "sum").inputs[1].index = -1; }, "got index -1"},
    {"ParameterOutOfRange", [](Graph& g) { node(g, "z").parameters[0].index = 999; },
     "node 'z': expected an existing parameter, got index 999"},
    {"StateOutOfRange", [](Graph& g) { node(g, "conv").state = StateId{12}; },
     "node 'conv': expected an existing state, got index 12"},
    {"OutputOutOfRange", [](Graph& g) { node(g, "z").output.index = 999; },
     "node 'z': expected an existing value as output, got index 999"},
    {"ConsumerBeforeProducer", [](Graph& g) { std::swap(Access::nodes(g)[3], Access::nodes(g)[4]); },
     "node 'query': expected input 'heads' to be produced before it, got it later or never"},
    {"WrongProducer", [](Graph& g) { output_of(g, "sum").producer.index = 1; },
     "node 'sum': expected to be the only producer of 'sum', got producer 1"},
    {"TwoProducers", [](Graph& g) { node(g, "sum").output = node(g, "norm").output; },
     "node 'sum': expected to be the only producer of 'norm'"},
    {"OutputShape", [](Graph& g) { output_of(g, "q").shape = {tokens_dim, dim(17)}; },
     "node 'q': expected output F32 [T, 16], got F32 [T, 17]"},
    {"OutputType", [](Graph& g) { output_of(g, "q").dtype = DType::f16; },
     "node 'q': expected output F32 [T, 16], got F16 [T, 16]"},
    {"ParameterShape", [](Graph& g) { Access::parameters(g)[0].shape = {16, 9}; },
     "node 'embed': expected output F32 [T, 9], got F32 [T, 8]"},
    {"StateDims", [](Graph& g) { Access::states(g)[0].dims = {2, 5}; },
     "node 'attention': attention: state 'cache': expected key_value_cache [2, 4], got key_value_cache [2, "
     "5]"},
    {"Attribute", [](Graph& g) { node(g, "query").op = op::Slice{0, 5}; },
     "node 'query': expected output F32 [T, 2, 5], got F32 [T, 2, 4]"},
    {"OtherOp", [](Graph& g) { node(g, "sum").op = op::GatherRows{}; }, "node 'sum': gather_rows: input 1"},
    {"RenamedParameter", [](Graph& g) { Access::parameters(g)[2].name = "elsewhere"; },
     "parameter 'elsewhere': expected index 2 by name, got -1"},
    {"EmptyName", [](Graph& g) { node(g, "sum").name.clear(); }, "expected a name, got an empty one"},
    {"TwiceNamedState", [](Graph& g) { Access::states(g)[1].name = Access::states(g)[0].name; },
     "state 'cache': expected a unique name, got it twice"},
    {"UnusedParameter", [](Graph& g) { node(g, "q").parameters.pop_back(); },
     "parameter 'q.b': expected a use, got none"},
    {"SharedState",
     [](Graph& g) { Access::states(g).push_back(State{"idle", State::Kind::convolution, {8, 2}}); },
     "state 'idle': expected exactly one use, got 0"},
    {"DeadNode", [](Graph& g) { node(g, "silu").inputs[0] = node(g, "sum").output; },
     "value 'up': expected a consumer, got none"},
    {"InputWithProducer", [](Graph& g) { Access::values(g)[0].producer.index = 3; },
     "input 'ids': expected no producer, got node 3"},
    {"InputTwice", [](Graph& g) { Access::inputs(g)[1] = Access::inputs(g)[0]; },
     "input 'ids': expected to be listed once, got it twice"},
    {"InputMissing", [](Graph& g) { Access::inputs(g).erase(Access::inputs(g).begin()); },
     "node 'embed': expected input 'ids' to be produced before it"},
    {"InputIndex", [](Graph& g) { Access::inputs(g)[0].index = 400; },
     "graph input: expected an existing value, got index 400"},
    {"HiddenOutOfRange", [](Graph& g) { Access::hidden(g)[0].index = 400; },
     "hidden value: expected an existing value, got index 400"},
    {"ResultOutOfRange", [](Graph& g) { Access::outputs(g)[0].index = 400; },
     "output: expected an existing value, got index 400"},
    {"OrphanValue",
     [](Graph& g) { Access::values(g).push_back(Value{"orphan", DType::f32, {dim(1)}, NodeId{}}); },
     "value 'orphan': expected a producer, got none"},
    {"ResultWithoutProducer",
     [](Graph& g) {
       Access::values(g).push_back(Value{"orphan", DType::f32, {dim(1)}, NodeId{}});
       Access::outputs(g)[0].index = static_cast<int32_t>(g.values().size()) - 1;
     },
     "output 'orphan': expected to be produced by a node, got no producer"},
};

INSTANTIATE_TEST_SUITE_P(Verifier, Corruptions, ::testing::ValuesIn(corruptions),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hexlm
