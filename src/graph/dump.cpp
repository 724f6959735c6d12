#include <algorithm>
#include <fmt/format.h>
#include <string>

#include "base/text.hpp"
#include "graph/graph.hpp"
#include "graph/shape_rules.hpp"

namespace hexlm {
namespace {

/// Parameters a line shows before it abbreviates: a mixture of experts has hundreds of matrices of one shape.
constexpr size_t parameters_shown = 3;

/// "T*12 H*10 W*10" would hide the order, so streams are letters in frequency order, or one when all are
/// time.
std::string streams_text(const std::vector<uint8_t>& streams) {
  if (std::all_of(streams.begin(), streams.end(), [](uint8_t stream) { return stream == 0; })) return "T";
  std::string text;
  for (uint8_t stream : streams) text += stream < 3 ? "THW"[stream] : '?';
  return text;
}

struct AttributesOf {
  std::string operator()(const op::Embedding&) const { return {}; }
  std::string operator()(const op::Linear&) const { return {}; }
  std::string operator()(const op::RmsNorm& op) const {
    return fmt::format("epsilon={} weight_offset={}", op.epsilon, op.weight_offset);
  }
  std::string operator()(const op::GatedRmsNorm& op) const { return fmt::format("epsilon={}", op.epsilon); }
  std::string operator()(const op::Reshape& op) const { return fmt::format("shape={}", to_string(op.shape)); }
  std::string operator()(const op::Slice& op) const {
    return fmt::format("begin={} end={}", op.begin, op.end);
  }
  std::string operator()(const op::Rope& op) const {
    const float first = op.inverse_frequencies.empty() ? 0.0F : op.inverse_frequencies.front();
    const float last = op.inverse_frequencies.empty() ? 0.0F : op.inverse_frequencies.back();
    return fmt::format("rotary_dim={} frequencies={:.4g}..{:.4g} streams={} attention_factor={}",
                       op.rotary_dim, first, last, streams_text(op.stream), op.attention_factor);
  }
  std::string operator()(const op::Attention& op) const {
    return fmt::format("query_heads={} key_value_heads={} head_dim={} scale={}", op.query_heads,
                       op.key_value_heads, op.head_dim, op.scale);
  }
  std::string operator()(const op::Add&) const { return {}; }
  std::string operator()(const op::SiluMultiply&) const { return {}; }
  std::string operator()(const op::SigmoidMultiply&) const { return {}; }
  std::string operator()(const op::CausalConvolution& op) const { return fmt::format("taps={}", op.taps); }
  std::string operator()(const op::GatedDeltaNet& op) const {
    return fmt::format("key_heads={} value_heads={} key_dim={} value_dim={} norm_epsilon={}", op.key_heads,
                       op.value_heads, op.key_dim, op.value_dim, op.norm_epsilon);
  }
  std::string operator()(const op::MixtureOfExperts& op) const {
    return fmt::format("experts={} top_k={} intermediate={} normalize={}", op.experts, op.top_k,
                       op.intermediate, op.normalize);
  }
  std::string operator()(const op::GatherRows&) const { return {}; }
  std::string operator()(const op::ReplaceRows&) const { return {}; }
  std::string operator()(const op::AddRows&) const { return {}; }
  std::string operator()(const op::LayerNorm& op) const { return fmt::format("epsilon={}", op.epsilon); }
  std::string operator()(const op::Gelu& op) const { return fmt::format("kind={}", to_string(op.kind)); }
  std::string operator()(const op::InterpolateRows&) const { return {}; }
  std::string operator()(const op::PatchAttention& op) const {
    return fmt::format("heads={} head_dim={} scale={}", op.heads, op.head_dim, op.scale);
  }
};

std::string value_text(const Value& value) {
  return fmt::format("{} {} {}", value.name, to_string(value.dtype), to_string(value.shape));
}

std::string parameter_text(const Parameter& parameter) {
  return fmt::format("{} {} {}", parameter.name, format_shape(parameter.shape), to_string(parameter.role));
}

std::string parameters_text(const Graph& graph, const Node& node) {
  std::string text = " {";
  const size_t count = node.parameters.size();
  for (size_t i = 0; i < std::min(count, parameters_shown); ++i) {
    if (i > 0) text += "; ";
    text += parameter_text(graph.parameter(node.parameters[i]));
  }
  if (count > parameters_shown) text += fmt::format("; ... {} in all", count);
  return text + "}";
}

std::string node_text(const Graph& graph, const Node& node) {
  std::string line = fmt::format("node {} = {}(", node.name, op_name(node.op));
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i > 0) line += ", ";
    line += graph.value(node.inputs[i]).name;
  }
  line += ")";
  if (const std::string attributes = std::visit(AttributesOf{}, node.op); !attributes.empty()) {
    line += " " + attributes;
  }
  if (!node.parameters.empty()) line += parameters_text(graph, node);
  if (node.state) line += fmt::format(" <{}>", graph.state(*node.state).name);
  const Value& output = graph.value(node.output);
  return line + fmt::format(" -> {} {}\n", to_string(output.dtype), to_string(output.shape));
}

}  // namespace

std::string dump(const Graph& graph) {
  std::string text = fmt::format("graph {} inputs, {} outputs, {} states, {} parameters, {} nodes\n",
                                 graph.inputs().size(), graph.outputs().size(), graph.states().size(),
                                 graph.parameters().size(), graph.nodes().size());
  for (ValueId id : graph.inputs()) text += fmt::format("input {}\n", value_text(graph.value(id)));
  for (const State& state : graph.states()) {
    text += fmt::format("state {} {} {}\n", state.name, to_string(state.kind), format_shape(state.dims));
  }
  for (const Node& node : graph.nodes()) text += node_text(graph, node);
  for (ValueId id : graph.hidden()) text += fmt::format("hidden {}\n", value_text(graph.value(id)));
  for (ValueId id : graph.outputs()) text += fmt::format("output {}\n", value_text(graph.value(id)));
  return text;
}

}  // namespace hexlm
