#pragma once

#include <utility>
#include <vector>

#include "graph/graph.hpp"

namespace hexlm {

/// Reaches into a finished graph, so that tests can break it in ways that the builder refuses.
struct GraphTestAccess {
  static std::vector<Value>& values(Graph& graph) { return graph.values_; }
  static std::vector<Parameter>& parameters(Graph& graph) { return graph.parameters_; }
  static std::vector<State>& states(Graph& graph) { return graph.states_; }
  static std::vector<Node>& nodes(Graph& graph) { return graph.nodes_; }
  static std::vector<ValueId>& inputs(Graph& graph) { return graph.inputs_; }
  static std::vector<ValueId>& outputs(Graph& graph) { return graph.outputs_; }
  static std::vector<ValueId>& hidden(Graph& graph) { return graph.hidden_; }
};

/// Inputs that most tests need.
struct SampleInputs {
  ValueId ids;
  ValueId positions;
  ValueId rows;
  explicit SampleInputs(GraphBuilder& graph)
      : ids(graph.input("ids", DType::i32, {tokens_dim})),
        positions(graph.input("positions", DType::i32, {dim(3), tokens_dim})),
        rows(graph.input("rows", DType::i32, {rows_dim})) {}
};

/// Embedding, one node of every other op once, head: 8 wide, vocabulary 16.
inline Result<Graph> every_op() {
  GraphBuilder g;
  const SampleInputs in(g);
  const auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
    return g.parameter(name, {rows, columns}, ParameterRole::linear);
  };
  const ParameterId table = g.parameter("table", {16, 8}, ParameterRole::embedding);
  ValueId x = g.add("embed", op::Embedding{}, {in.ids}, {table});
  g.mark_hidden(x);
  const ValueId h =
      g.add("norm", op::RmsNorm{1e-6F, 1}, {x}, {g.parameter("norm.w", {8}, ParameterRole::vector)});

  const ValueId wide =
      g.add("q", op::Linear{}, {h}, {matrix("q.w", 16, 8), g.parameter("q.b", {16}, ParameterRole::vector)});
  const ValueId heads = g.add("heads", op::Reshape{{tokens_dim, dim(2), dim(8)}}, {wide});
  const ValueId query = g.add("query", op::Slice{0, 4}, {heads});
  const ValueId key = g.add("key", op::Slice{4, 8}, {heads});
  const op::Rope rope{4, {1.0F, 0.25F}, {0, 2}, 1};
  const ValueId turned = g.add("rope", rope, {query, in.positions});
  const ValueId mixed = g.add("attention", op::Attention{2, 2, 4, 0.5F}, {turned, key, key}, {},
                              g.state("cache", State::Kind::key_value_cache, {2, 4}));
  const ValueId gated = g.add("gated", op::SigmoidMultiply{}, {mixed, h});
  x = g.add("sum", op::Add{}, {x, gated});

  // Delta net: 1 key head of 2, 2 value heads of 2: 2·1·2 + 2·2 = 8 channels.
  const ValueId convolved =
      g.add("conv", op::CausalConvolution{3}, {x}, {g.parameter("conv.w", {8, 1, 3}, ParameterRole::vector)},
            g.state("taps", State::Kind::convolution, {8, 2}));
  const ValueId b = g.add("b", op::Linear{}, {x}, {g.parameter("b.w", {2, 8}, ParameterRole::sensitive)});
  const ValueId a = g.add("a", op::Linear{}, {x}, {g.parameter("a.w", {2, 8}, ParameterRole::sensitive)});
  const ValueId memory = g.add(
      "delta", op::GatedDeltaNet{1, 2, 2, 2, 1e-6F}, {convolved, b, a},
      {g.parameter("A_log", {2}, ParameterRole::vector), g.parameter("dt_bias", {2}, ParameterRole::vector)},
      g.state("memory", State::Kind::delta_net, {2, 2, 2}));
  const ValueId z = g.add("z", op::Linear{}, {x}, {matrix("z.w", 4, 8)});
  const ValueId normed = g.add("gated_norm", op::GatedRmsNorm{1e-6F}, {memory, z},
                               {g.parameter("gated_norm.w", {4}, ParameterRole::vector)});
  const ValueId up = g.add("up", op::Linear{}, {normed}, {matrix("up.w", 8, 4)});
  x = g.add("silu", op::SiluMultiply{}, {up, x});

  const ValueId router = g.add("router", op::Linear{}, {x}, {matrix("router.w", 2, 8)});
  x = g.add("experts", op::MixtureOfExperts{2, 1, 6, true}, {x, router},
            {matrix("e0.gate", 6, 8), matrix("e0.up", 6, 8), matrix("e0.down", 8, 6), matrix("e1.gate", 6, 8),
             matrix("e1.up", 6, 8), matrix("e1.down", 8, 6)});
  g.mark_hidden(x);
  x = g.add("gather", op::GatherRows{}, {x, in.rows});
  g.output(g.add("head", op::Linear{}, {x}, {table}));
  return std::move(g).build();
}

}  // namespace hexlm
