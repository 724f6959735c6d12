#include "graph/extract.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

namespace hexlm {
namespace {

class Extractor {
 public:
  Extractor(const Graph& graph, std::span<const ValueId> from)
      : graph_(graph), from_(from), values_(graph.values().size()), states_(graph.states().size()) {}

  Result<Graph> extract(std::span<const ValueId> to) {
    HEXLM_TRY(find_needed(to));
    for (const ValueId id : from_) add_input(id);
    for (const ValueId id : graph_.inputs()) {
      if (needed_[index(id)] && !is_given(id)) add_input(id);
    }
    for (const Node& node : graph_.nodes()) {
      if (needed_[index(node.output)] && !is_given(node.output)) add_node(node);
    }
    for (const ValueId id : to) builder_.output(values_[index(id)]);
    return std::move(builder_).build();
  }

 private:
  template <class Id>
  static size_t index(Id id) {
    return static_cast<size_t>(id.index);
  }
  bool is_given(ValueId id) const { return std::find(from_.begin(), from_.end(), id) != from_.end(); }

  /// Walks the nodes backwards: whoever reads a value comes after its producer.
  Status find_needed(std::span<const ValueId> to) {
    needed_.assign(graph_.values().size(), false);
    for (const ValueId id : to) {
      if (is_given(id) || graph_.value(id).producer.index < 0) {
        return fail(ErrorCode::runtime, fmt::format("the part of a graph that computes '{}' would be empty",
                                                    graph_.value(id).name));
      }
      needed_[index(id)] = true;
    }
    for (size_t i = graph_.nodes().size(); i-- > 0;) {
      const Node& node = graph_.nodes()[i];
      if (!needed_[index(node.output)] || is_given(node.output)) continue;
      for (const ValueId id : node.inputs) needed_[index(id)] = true;
    }
    return {};
  }

  void add_input(ValueId id) {
    const Value& value = graph_.value(id);
    values_[index(id)] = builder_.input(value.name, value.dtype, value.shape);
  }

  void add_node(const Node& node) {
    std::vector<ValueId> inputs;
    inputs.reserve(node.inputs.size());
    for (const ValueId id : node.inputs) inputs.push_back(values_[index(id)]);
    std::vector<ParameterId> parameters;
    for (const ParameterId id : node.parameters) {
      const Parameter& parameter = graph_.parameter(id);
      parameters.push_back(builder_.parameter(parameter.name, parameter.shape, parameter.role));
    }
    std::optional<StateId> state;
    if (node.state) {
      std::optional<StateId>& known = states_[index(*node.state)];
      if (!known) {
        const State& original = graph_.state(*node.state);
        known = builder_.state(original.name, original.kind, original.dims);
      }
      state = known;
    }
    values_[index(node.output)] =
        builder_.add(node.name, node.op, std::move(inputs), std::move(parameters), state);
  }

  const Graph& graph_;
  std::span<const ValueId> from_;
  std::vector<bool> needed_;
  std::vector<ValueId> values_;  // of the new graph, by index in the old
  std::vector<std::optional<StateId>> states_;
  GraphBuilder builder_;
};

}  // namespace

Result<Graph> extract(const Graph& graph, std::span<const ValueId> from, std::span<const ValueId> to) {
  return Extractor(graph, from).extract(to);
}

}  // namespace hexlm
