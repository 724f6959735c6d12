#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "graph/ops.hpp"
#include "graph/shape.hpp"

namespace hexlm {

/// Index into the graph's values, parameters, states or nodes; −1 is none.
struct ValueId {
  int32_t index = -1;
  bool operator==(const ValueId&) const = default;
};
struct ParameterId {
  int32_t index = -1;
  bool operator==(const ParameterId&) const = default;
};
struct StateId {
  int32_t index = -1;
  bool operator==(const StateId&) const = default;
};
struct NodeId {
  int32_t index = -1;
  bool operator==(const NodeId&) const = default;
};

struct Value {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  NodeId producer;  ///< none for graph inputs
};

/// What a parameter is for, which decides how export stores it by default (docs/quantization.md).
enum class ParameterRole : uint8_t {
  linear,     ///< a matrix of a decoder layer: --quant
  embedding,  ///< the token table: --embedding (and --lm-head when tied)
  lm_head,    ///< --lm-head
  sensitive,  ///< small matrices whose error is amplified (in_proj_a/b, router): kept at f16 or better
  vector,     ///< norms, biases, A_log, …: kept f32
  vision,     ///< a matrix of the vision tower: --vision
};
std::string_view to_string(ParameterRole role);

struct Parameter {
  std::string name;  ///< canonical, `layers.0.mlp.down_proj.weight`
  std::vector<int64_t> shape;
  ParameterRole role = ParameterRole::vector;
};

/// What lives between steps.
struct State {
  enum class Kind : uint8_t {
    key_value_cache,  ///< grows by one entry a token; can be truncated. dims: {heads, head_dim}
    convolution,      ///< the last taps−1 inputs; replace only. dims: {channels, taps − 1}
    delta_net,        ///< fp32 matrix per head; replace only. dims: {value_heads, key_dim, value_dim}
  };
  std::string name;
  Kind kind = Kind::key_value_cache;
  std::vector<int64_t> dims;
};

struct Node {
  std::string name;  ///< stable, `layers.3.mlp.down_proj`, the same in every report
  Op op;
  std::vector<ValueId> inputs;
  std::vector<ParameterId> parameters;
  std::optional<StateId> state;
  ValueId output;
};

/// A checked, topologically ordered graph. Built by GraphBuilder; immutable afterwards.
class Graph {
 public:
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<State>& states() const { return states_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  /// In the order a plan's run takes them.
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  /// The input of every layer, then the final norm's output: what `logits --hidden` shows.
  const std::vector<ValueId>& hidden() const { return hidden_; }

  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id.index)]; }
  const Parameter& parameter(ParameterId id) const { return parameters_[static_cast<size_t>(id.index)]; }
  const State& state(StateId id) const { return states_[static_cast<size_t>(id.index)]; }
  /// The parameter's index, or none.
  ParameterId find_parameter(std::string_view name) const;

 private:
  friend class GraphBuilder;
  friend struct GraphTestAccess;  // defined by tests only, to show the verifier broken graphs
  std::vector<Value> values_;
  std::vector<Parameter> parameters_;
  std::map<std::string, int32_t, std::less<>> parameter_index_;
  std::vector<State> states_;
  std::vector<Node> nodes_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> outputs_;
  std::vector<ValueId> hidden_;
};

/// Builds a graph node by node. Shapes are checked as it goes; the first mistake is remembered, later calls
/// do nothing, and `build` returns it (ErrorCode::runtime: which node, what was expected, what came), so that
/// a model definition reads without error handling.
class GraphBuilder {
 public:
  ValueId input(std::string name, DType dtype, Shape shape);
  /// Declaring a name twice with the same shape gives the same id (tied weights); another shape is an error.
  ParameterId parameter(std::string name, std::vector<int64_t> shape, ParameterRole role);
  StateId state(std::string name, State::Kind kind, std::vector<int64_t> dims);

  /// The one way to add a node: checks arity, dtypes and shapes for the op and infers the output.
  ValueId add(std::string name, Op op, std::vector<ValueId> inputs, std::vector<ParameterId> parameters = {},
              std::optional<StateId> state = std::nullopt);

  void mark_hidden(ValueId value);
  void output(ValueId value);
  const Value& value(ValueId id) const;
  /// Runs the verifier and hands the graph over.
  Result<Graph> build() &&;

 private:
  void fail_at(const std::string& node, std::string message);
  Graph graph_;
  std::optional<Error> error_;
};

/// Checks the whole: ids in range, producers before consumers, shapes as the ops define them, every parameter
/// and state used, names unique. Errors: runtime, naming node, expected and got.
Status verify(const Graph& graph);

/// The text of `inspect --graph`: a line a node with op, attributes, inputs, parameters, state and shapes.
std::string dump(const Graph& graph);

}  // namespace hexlm
