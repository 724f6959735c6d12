#include "backends/cpu/steps.hpp"

#include <variant>

namespace hexlm {
namespace {

struct StepVisitor {
  const StepMaker& maker;
  const Node& node;

  std::unique_ptr<Step> operator()(const op::Embedding&) const { return make_embedding_step(maker, node); }
  std::unique_ptr<Step> operator()(const op::Linear&) const { return make_linear_step(maker, node); }
  std::unique_ptr<Step> operator()(const op::RmsNorm& op) const { return make_norm_step(maker, node, op); }
  std::unique_ptr<Step> operator()(const op::GatedRmsNorm& op) const {
    return make_gated_norm_step(maker, node, op);
  }
  std::unique_ptr<Step> operator()(const op::Reshape&) const { return nullptr; }
  std::unique_ptr<Step> operator()(const op::Slice& op) const { return make_slice_step(maker, node, op); }
  std::unique_ptr<Step> operator()(const op::Rope& op) const { return make_rope_step(maker, node, op); }
  std::unique_ptr<Step> operator()(const op::Attention& op) const {
    return make_attention_step(maker, node, op);
  }
  std::unique_ptr<Step> operator()(const op::Add&) const { return make_pair_step(maker, node); }
  std::unique_ptr<Step> operator()(const op::SiluMultiply&) const { return make_pair_step(maker, node); }
  std::unique_ptr<Step> operator()(const op::SigmoidMultiply&) const { return make_pair_step(maker, node); }
  std::unique_ptr<Step> operator()(const op::CausalConvolution& op) const {
    return make_convolution_step(maker, node, op);
  }
  std::unique_ptr<Step> operator()(const op::GatedDeltaNet& op) const {
    return make_delta_net_step(maker, node, op);
  }
  std::unique_ptr<Step> operator()(const op::MixtureOfExperts& op) const {
    return make_experts_step(maker, node, op);
  }
  std::unique_ptr<Step> operator()(const op::GatherRows&) const { return make_gather_step(maker, node); }
  std::unique_ptr<Step> operator()(const op::ReplaceRows&) const { return make_index_step(maker, node); }
  std::unique_ptr<Step> operator()(const op::AddRows&) const { return make_index_step(maker, node); }
  std::unique_ptr<Step> operator()(const op::LayerNorm& op) const {
    return make_layer_norm_step(maker, node, op);
  }
  std::unique_ptr<Step> operator()(const op::Gelu& op) const { return make_gelu_step(maker, node, op); }
  std::unique_ptr<Step> operator()(const op::InterpolateRows&) const {
    return make_interpolate_step(maker, node);
  }
  std::unique_ptr<Step> operator()(const op::PatchAttention& op) const {
    return make_patch_attention_step(maker, node, op);
  }
};

}  // namespace

std::unique_ptr<Step> make_step(const StepMaker& maker, const Node& node) {
  return std::visit(StepVisitor{maker, node}, node.op);
}

int64_t scratch_bytes(const Graph& graph, const Node& node, const PlanOptions& options) {
  if (const auto* experts = std::get_if<op::MixtureOfExperts>(&node.op)) {
    return experts_scratch_bytes(*experts, graph.value(node.output).shape.back().value, options.max_tokens);
  }
  if (const auto* delta = std::get_if<op::GatedDeltaNet>(&node.op)) {
    return 2 * options.max_tokens * delta->value_heads * int64_t{sizeof(float)};
  }
  if (const auto* attention = std::get_if<op::PatchAttention>(&node.op)) {
    return patch_attention_scratch(*attention, *extent_of(graph.value(node.output).shape, 0, 1), options);
  }
  return 0;
}

int64_t worker_scratch(const Graph& graph, const Node& node) {
  if (std::holds_alternative<op::Linear>(node.op)) {
    return float_linear_scratch(graph.value(node.inputs[0]).shape.back().value);
  }
  if (const auto* attention = std::get_if<op::Attention>(&node.op))
    return attention_scratch(attention->head_dim);
  if (const auto* attention = std::get_if<op::PatchAttention>(&node.op)) {
    return std::max(attention_scratch(attention->head_dim), attention->heads * attention->head_dim);
  }
  if (std::holds_alternative<op::InterpolateRows>(node.op)) {
    return graph.value(node.output).shape.back().value;
  }
  if (const auto* delta = std::get_if<op::GatedDeltaNet>(&node.op)) {
    return delta_net_scratch(delta->key_dim);
  }
  if (const auto* experts = std::get_if<op::MixtureOfExperts>(&node.op)) {
    const int64_t hidden = graph.value(node.output).shape.back().value;
    return std::max(
        {float_linear_scratch(hidden), float_linear_scratch(experts->intermediate), experts->experts});
  }
  return 0;
}

}  // namespace hexlm
