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
    stages.push_back({node.inputs[0], {&node}});
  }
}

}  // namespace

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
  return stages;
}

}  // namespace hexlm
