#include "quantization/layer_stages.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace hexlm {
namespace {

Result<ValueId> find_value(const Graph& graph, const std::string& name) {
  for (const Node& node : graph.nodes()) {
    if (node.name == name) return node.output;
  }
  return fail(ErrorCode::unsupported, fmt::format("calibration needs a graph with a node '{}'", name),
              "use --method mse, which needs no activations");
}

void add_linear(std::vector<Stage>& stages, const Node& node) {
  const auto found = std::find_if(stages.begin(), stages.end(),
                                  [&](const Stage& stage) { return stage.input == node.inputs[0]; });
  if (found != stages.end()) {
    found->linears.push_back(&node);
  } else {
    stages.push_back({node.inputs[0], {&node}, {}, true});
  }
}

void find_companions(const Graph& graph, Stage& stage) {
  for (const Node& node : graph.nodes()) {
    if (std::find(node.inputs.begin(), node.inputs.end(), stage.input) == node.inputs.end()) continue;
    if (std::find(stage.linears.begin(), stage.linears.end(), &node) != stage.linears.end()) continue;
    if (std::holds_alternative<op::Linear>(node.op)) {
      stage.companions.push_back(&node);
    } else {
      stage.only_linears = false;
    }
  }
}

}  // namespace

std::optional<FoldTarget> find_fold_target(const Graph& graph, const Stage& stage) {
  const auto producer = [&](ValueId id) -> const Node* {
    const NodeId node = graph.value(id).producer;
    return node.index < 0 ? nullptr : &graph.nodes()[static_cast<size_t>(node.index)];
  };
  const auto rows_of = [&](const Node* node) -> std::optional<FoldTarget> {
    if (node == nullptr || !std::holds_alternative<op::Linear>(node->op)) return std::nullopt;
    FoldTarget target;
    for (const ParameterId id : node->parameters) target.divided.push_back(graph.parameter(id).name);
    return target;
  };
  const Node* maker = producer(stage.input);
  if (!stage.only_linears || maker == nullptr) return std::nullopt;
  if (const auto* norm = std::get_if<op::RmsNorm>(&maker->op)) {
    return FoldTarget{{graph.parameter(maker->parameters[0]).name}, norm->weight_offset};
  }
  if (std::holds_alternative<op::SiluMultiply>(maker->op)) return rows_of(producer(maker->inputs[1]));
  // The gate of gated attention multiplies elements, so that the output stays linear in the values.
  if (std::holds_alternative<op::SigmoidMultiply>(maker->op)) maker = producer(maker->inputs[0]);
  const auto* attention = maker == nullptr ? nullptr : std::get_if<op::Attention>(&maker->op);
  if (attention == nullptr || attention->query_heads != attention->key_value_heads) return std::nullopt;
  const Node* heads = producer(maker->inputs[2]);
  return heads == nullptr ? std::nullopt : rows_of(producer(heads->inputs[0]));
}

Result<LayerStages> find_stages(const Graph& graph, int64_t layer,
                                const std::function<bool(const Parameter&)>& wanted) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  LayerStages stages;
  stages.input = graph.hidden()[static_cast<size_t>(layer)];
  HEXLM_ASSIGN(stages.middle, find_value(graph, prefix + "mixer_residual"));
  HEXLM_ASSIGN(stages.output, find_value(graph, prefix + "mlp_residual"));
  for (const Node& node : graph.nodes()) {
    if (!node.name.starts_with(prefix) || !std::holds_alternative<op::Linear>(node.op)) continue;
    if (!wanted(graph.parameter(node.parameters[0]))) continue;
    add_linear(node.output.index < stages.middle.index ? stages.mixer : stages.mlp, node);
  }
  for (std::vector<Stage>* half : {&stages.mixer, &stages.mlp}) {
    for (Stage& stage : *half) find_companions(graph, stage);
  }
  return stages;
}

}  // namespace hexlm
