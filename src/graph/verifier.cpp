#include <fmt/format.h>
#include <set>
#include <string_view>
#include <vector>

#include "graph/graph.hpp"
#include "graph/shape_rules.hpp"

namespace hexlm {
namespace {

/// Walks a graph once and trusts nothing that the builder checked before: passes and importers also make
/// graphs.
class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph),
        produced_(graph.values().size(), false),
        consumed_(graph.values().size(), false),
        parameter_uses_(graph.parameters().size(), 0),
        state_uses_(graph.states().size(), 0) {}

  Status run() {
    HEXLM_TRY(check_names());
    HEXLM_TRY(check_inputs());
    for (size_t i = 0; i < graph_.nodes().size(); ++i) HEXLM_TRY(check_node(static_cast<int32_t>(i)));
    HEXLM_TRY(check_results("output", graph_.outputs()));
    HEXLM_TRY(check_results("hidden value", graph_.hidden()));
    if (graph_.outputs().empty()) return mistake("graph", "expected at least one output, got none");
    return check_uses();
  }

 private:
  static Status mistake(std::string_view what, std::string_view message) {
    return fail(ErrorCode::runtime, fmt::format("graph verifier: {}: {}", what, message));
  }
  static Status node_mistake(const Node& node, std::string_view message) {
    return mistake(fmt::format("node '{}'", node.name), message);
  }
  template <class Id>
  static bool in_range(Id id, size_t count) {
    return id.index >= 0 && static_cast<size_t>(id.index) < count;
  }

  template <class Items>
  static Status unique_names(std::string_view kind, const Items& items) {
    std::set<std::string_view> seen;
    for (const auto& item : items) {
      if (item.name.empty()) return mistake(kind, "expected a name, got an empty one");
      if (!seen.insert(item.name).second) {
        return mistake(fmt::format("{} '{}'", kind, item.name), "expected a unique name, got it twice");
      }
    }
    return {};
  }

  Status check_names() const {
    HEXLM_TRY(unique_names("node", graph_.nodes()));
    HEXLM_TRY(unique_names("value", graph_.values()));
    HEXLM_TRY(unique_names("parameter", graph_.parameters()));
    HEXLM_TRY(unique_names("state", graph_.states()));
    for (size_t i = 0; i < graph_.parameters().size(); ++i) {
      const Parameter& parameter = graph_.parameters()[i];
      const ParameterId found = graph_.find_parameter(parameter.name);
      if (found.index != static_cast<int32_t>(i)) {
        return mistake(fmt::format("parameter '{}'", parameter.name),
                       fmt::format("expected index {} by name, got {}", i, found.index));
      }
    }
    return {};
  }

  Status check_inputs() {
    for (ValueId id : graph_.inputs()) {
      if (!in_range(id, graph_.values().size())) {
        return mistake("graph input", fmt::format("expected an existing value, got index {}", id.index));
      }
      const Value& value = graph_.value(id);
      if (value.producer.index != -1) {
        return mistake(fmt::format("input '{}'", value.name),
                       fmt::format("expected no producer, got node {}", value.producer.index));
      }
      if (produced_[static_cast<size_t>(id.index)]) {
        return mistake(fmt::format("input '{}'", value.name), "expected to be listed once, got it twice");
      }
      produced_[static_cast<size_t>(id.index)] = true;
    }
    return {};
  }

  Status gather(const Node& node, Operands& operands) {
    for (ValueId id : node.inputs) {
      if (!in_range(id, graph_.values().size())) {
        return node_mistake(node, fmt::format("expected an existing value as input, got index {}", id.index));
      }
      if (!produced_[static_cast<size_t>(id.index)]) {
        return node_mistake(node,
                            fmt::format("expected input '{}' to be produced before it, got it later or never",
                                        graph_.value(id).name));
      }
      consumed_[static_cast<size_t>(id.index)] = true;
      operands.inputs.push_back(&graph_.value(id));
    }
    for (ParameterId id : node.parameters) {
      if (!in_range(id, graph_.parameters().size())) {
        return node_mistake(node, fmt::format("expected an existing parameter, got index {}", id.index));
      }
      ++parameter_uses_[static_cast<size_t>(id.index)];
      operands.parameters.push_back(&graph_.parameter(id));
    }
    if (node.state) {
      if (!in_range(*node.state, graph_.states().size())) {
        return node_mistake(node, fmt::format("expected an existing state, got index {}", node.state->index));
      }
      ++state_uses_[static_cast<size_t>(node.state->index)];
      operands.state = &graph_.state(*node.state);
    }
    return {};
  }

  Status check_node(int32_t index) {
    const Node& node = graph_.nodes()[static_cast<size_t>(index)];
    Operands operands;
    HEXLM_TRY(gather(node, operands));
    const auto shape = infer_output(node.op, operands);
    if (!shape) return node_mistake(node, fmt::format("{}: {}", op_name(node.op), shape.error()));
    if (!in_range(node.output, graph_.values().size())) {
      return node_mistake(
          node, fmt::format("expected an existing value as output, got index {}", node.output.index));
    }
    const Value& output = graph_.value(node.output);
    if (output.producer.index != index || produced_[static_cast<size_t>(node.output.index)]) {
      return node_mistake(node, fmt::format("expected to be the only producer of '{}', got producer {}",
                                            output.name, output.producer.index));
    }
    if (output.dtype != DType::f32 || output.shape != *shape) {
      return node_mistake(node, fmt::format("expected output F32 {}, got {} {}", to_string(*shape),
                                            to_string(output.dtype), to_string(output.shape)));
    }
    produced_[static_cast<size_t>(node.output.index)] = true;
    return {};
  }

  Status check_results(std::string_view kind, const std::vector<ValueId>& ids) {
    for (ValueId id : ids) {
      if (!in_range(id, graph_.values().size())) {
        return mistake(kind, fmt::format("expected an existing value, got index {}", id.index));
      }
      if (!produced_[static_cast<size_t>(id.index)]) {
        return mistake(fmt::format("{} '{}'", kind, graph_.value(id).name),
                       "expected to be produced by a node, got no producer");
      }
      consumed_[static_cast<size_t>(id.index)] = true;
    }
    return {};
  }

  Status check_uses() const {
    for (size_t i = 0; i < graph_.values().size(); ++i) {
      const Value& value = graph_.values()[i];
      if (!produced_[i])
        return mistake(fmt::format("value '{}'", value.name), "expected a producer, got none");
      // A graph input may be idle: a decoder without softmax attention reads no positions.
      if (!consumed_[i] && value.producer.index != -1) {
        return mistake(fmt::format("value '{}'", value.name), "expected a consumer, got none");
      }
    }
    for (size_t i = 0; i < parameter_uses_.size(); ++i) {
      if (parameter_uses_[i] == 0) {
        return mistake(fmt::format("parameter '{}'", graph_.parameters()[i].name),
                       "expected a use, got none");
      }
    }
    for (size_t i = 0; i < state_uses_.size(); ++i) {
      if (state_uses_[i] != 1) {
        return mistake(fmt::format("state '{}'", graph_.states()[i].name),
                       fmt::format("expected exactly one use, got {}", state_uses_[i]));
      }
    }
    return {};
  }

  const Graph& graph_;
  std::vector<bool> produced_;
  std::vector<bool> consumed_;
  std::vector<int> parameter_uses_;
  std::vector<int> state_uses_;
};

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace hexlm
