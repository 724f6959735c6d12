#include <fmt/format.h>
#include <utility>

#include "base/text.hpp"
#include "graph/graph.hpp"
#include "graph/shape_rules.hpp"

namespace hexlm {
namespace {

template <class Id, class Items>
bool in_range(Id id, const Items& items) {
  return id.index >= 0 && static_cast<size_t>(id.index) < items.size();
}

bool all_positive(const std::vector<int64_t>& dims) {
  for (int64_t size : dims) {
    if (size <= 0) return false;
  }
  return !dims.empty();
}

bool all_positive(const Shape& shape) {
  for (const Dim& dim : shape) {
    if (dim.value <= 0) return false;
  }
  return !shape.empty();
}

}  // namespace

void GraphBuilder::fail_at(const std::string& node, std::string message) {
  if (!error_) error_ = Error{ErrorCode::runtime, fmt::format("graph node '{}': {}", node, message), {}};
}

ValueId GraphBuilder::input(std::string name, DType dtype, Shape shape) {
  if (error_) return {};
  if (!all_positive(shape)) {
    fail_at(name, fmt::format("expected an input of positive dimensions, got {}", to_string(shape)));
    return {};
  }
  const ValueId id{static_cast<int32_t>(graph_.values_.size())};
  graph_.values_.push_back(Value{std::move(name), dtype, std::move(shape), NodeId{}});
  graph_.inputs_.push_back(id);
  return id;
}

ParameterId GraphBuilder::parameter(std::string name, std::vector<int64_t> shape, ParameterRole role) {
  if (error_) return {};
  if (!all_positive(shape)) {
    fail_at(name, fmt::format("expected a parameter of positive dimensions, got {}", format_shape(shape)));
    return {};
  }
  if (const ParameterId known = graph_.find_parameter(name); known.index >= 0) {
    const Parameter& first = graph_.parameter(known);
    if (first.shape == shape) return known;
    fail_at(name, fmt::format("expected the shape declared first, {}, got {}", format_shape(first.shape),
                              format_shape(shape)));
    return {};
  }
  const ParameterId id{static_cast<int32_t>(graph_.parameters_.size())};
  graph_.parameter_index_.emplace(name, id.index);
  graph_.parameters_.push_back(Parameter{std::move(name), std::move(shape), role});
  return id;
}

StateId GraphBuilder::state(std::string name, State::Kind kind, std::vector<int64_t> dims) {
  if (error_) return {};
  if (!all_positive(dims)) {
    fail_at(name, fmt::format("expected a state of positive dimensions, got {}", format_shape(dims)));
    return {};
  }
  const StateId id{static_cast<int32_t>(graph_.states_.size())};
  graph_.states_.push_back(State{std::move(name), kind, std::move(dims)});
  return id;
}

ValueId GraphBuilder::add(std::string name, Op op, std::vector<ValueId> inputs,
                          std::vector<ParameterId> parameters, std::optional<StateId> state) {
  if (error_) return {};
  Operands operands;
  for (ValueId id : inputs) {
    if (!in_range(id, graph_.values_)) {
      fail_at(name, fmt::format("expected an existing value as input, got index {}", id.index));
      return {};
    }
    operands.inputs.push_back(&graph_.value(id));
  }
  for (ParameterId id : parameters) {
    if (!in_range(id, graph_.parameters_)) {
      fail_at(name, fmt::format("expected an existing parameter, got index {}", id.index));
      return {};
    }
    operands.parameters.push_back(&graph_.parameter(id));
  }
  if (state && !in_range(*state, graph_.states_)) {
    fail_at(name, fmt::format("expected an existing state, got index {}", state->index));
    return {};
  }
  if (state) operands.state = &graph_.state(*state);
  auto shape = infer_output(op, operands);
  if (!shape) {
    fail_at(name, fmt::format("{}: {}", op_name(op), shape.error()));
    return {};
  }
  const NodeId node{static_cast<int32_t>(graph_.nodes_.size())};
  const ValueId output{static_cast<int32_t>(graph_.values_.size())};
  graph_.values_.push_back(Value{name, DType::f32, *std::move(shape), node});
  graph_.nodes_.push_back(
      Node{std::move(name), std::move(op), std::move(inputs), std::move(parameters), state, output});
  return output;
}

void GraphBuilder::mark_hidden(ValueId value) {
  if (error_) return;
  if (!in_range(value, graph_.values_)) {
    fail_at("hidden", fmt::format("expected an existing value, got index {}", value.index));
    return;
  }
  graph_.hidden_.push_back(value);
}

void GraphBuilder::output(ValueId value) {
  if (error_) return;
  if (!in_range(value, graph_.values_)) {
    fail_at("output", fmt::format("expected an existing value, got index {}", value.index));
    return;
  }
  graph_.outputs_.push_back(value);
}

const Value& GraphBuilder::value(ValueId id) const {
  // After a mistake `add` returns no value, and a definition may still ask for its shape.
  static const Value none;
  return in_range(id, graph_.values_) ? graph_.value(id) : none;
}

Result<Graph> GraphBuilder::build() && {
  if (error_) return tl::unexpected<Error>(*std::move(error_));
  HEXLM_TRY(verify(graph_));
  return std::move(graph_);
}

}  // namespace hexlm
