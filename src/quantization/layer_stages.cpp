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
    stages.push_back({node.inputs[0], {&node}, {}, true, false});
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

/// The stages among the nodes that compute `to` from `from`.
Half find_half(const Graph& graph, ValueId from, ValueId to, const WantedWeight& wanted) {
  Half half{from, to, {}, false};
  std::vector<bool> needed(graph.values().size(), false);
  const auto mark = [&](ValueId id) { needed[static_cast<size_t>(id.index)] = true; };
  mark(to);
  std::vector<const Node*> nodes;
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if (!needed[static_cast<size_t>(node->output.index)] || node->output == from) continue;
    nodes.push_back(&*node);
    for (const ValueId id : node->inputs) mark(id);
  }
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (std::holds_alternative<op::Linear>((*node)->op) && wanted(graph.parameter((*node)->parameters[0]))) {
      add_linear(half.stages, **node);
    }
  }
  for (Stage& stage : half.stages) find_companions(graph, stage);
  const Node& sum = graph.nodes()[static_cast<size_t>(graph.value(to).producer.index)];
  if (!half.stages.empty() && half.stages.back().linears.size() == 1 &&
      std::holds_alternative<op::Add>(sum.op)) {
    half.stages.back().ends_half = sum.inputs[1] == half.stages.back().linears[0]->output;
  }
  return half;
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
  if (std::holds_alternative<op::LayerNorm>(maker->op)) {
    return FoldTarget{
        {graph.parameter(maker->parameters[0]).name, graph.parameter(maker->parameters[1]).name}, 0};
  }
  if (std::holds_alternative<op::SiluMultiply>(maker->op)) return rows_of(producer(maker->inputs[1]));
  // The gate of gated attention multiplies elements, so that the output stays linear in the values.
  if (std::holds_alternative<op::SigmoidMultiply>(maker->op)) maker = producer(maker->inputs[0]);
  const auto* attention = maker == nullptr ? nullptr : std::get_if<op::Attention>(&maker->op);
  if (attention == nullptr || attention->query_heads != attention->key_value_heads) return std::nullopt;
  const Node* heads = producer(maker->inputs[2]);
  return heads == nullptr ? std::nullopt : rows_of(producer(heads->inputs[0]));
}

Result<std::vector<WalkLayer>> decoder_layers(const Graph& graph, const WantedWeight& wanted) {
  std::vector<WalkLayer> layers;
  // The last hidden value is what the final norm makes.
  for (size_t i = 0; i + 1 < graph.hidden().size(); ++i) {
    WalkLayer layer;
    layer.name = fmt::format("layers.{}", i);
    HEXLM_ASSIGN(const ValueId middle, find_value(graph, layer.name + ".mixer_residual"));
    HEXLM_ASSIGN(const ValueId output, find_value(graph, layer.name + ".mlp_residual"));
    layer.halves.push_back(find_half(graph, graph.hidden()[i], middle, wanted));
    layer.halves.push_back(find_half(graph, middle, output, wanted));
    // Images may add to the hidden state between two layers.
    const bool last = i + 2 == graph.hidden().size();
    if (!last && !(graph.hidden()[i + 1] == output)) layer.next = graph.hidden()[i + 1];
    layers.push_back(std::move(layer));
  }
  return layers;
}

Result<std::vector<WalkLayer>> tower_layers(const Graph& graph, const VisionConfig& config,
                                            const WantedWeight& wanted) {
  std::vector<WalkLayer> layers;
  ValueId output;
  for (size_t i = 0; i < graph.hidden().size(); ++i) {
    WalkLayer layer;
    layer.name = fmt::format("visual.blocks.{}", i);
    HEXLM_ASSIGN(const ValueId middle, find_value(graph, layer.name + ".attn_residual"));
    HEXLM_ASSIGN(output, find_value(graph, layer.name + ".mlp_residual"));
    layer.halves.push_back(find_half(graph, graph.hidden()[i], middle, wanted));
    layer.halves.push_back(find_half(graph, middle, output, wanted));
    for (size_t level = 0; level < config.deepstack_blocks.size(); ++level) {
      if (config.deepstack_blocks[level] != static_cast<int64_t>(i)) continue;
      layer.halves.push_back(find_half(graph, output, graph.outputs()[level + 1], wanted));
      layer.halves.back().leaves = true;
    }
    layers.push_back(std::move(layer));
  }
  WalkLayer merger;
  merger.name = "visual.merger";
  merger.halves.push_back(find_half(graph, output, graph.outputs()[0], wanted));
  merger.halves.back().leaves = true;
  layers.push_back(std::move(merger));
  return layers;
}

}  // namespace hexlm
