#include "models/vision_tower.hpp"

#include <cmath>
#include <fmt/format.h>
#include <utility>
#include <vector>

namespace hexlm {
namespace {

/// Every tower of the family has this one; no config names it.
constexpr float norm_epsilon = 1e-6F;

}  // namespace

VisionTower::VisionTower(const VisionConfig& config, const TowerTraits& traits)
    : config_(config), traits_(traits), rows_{config.merged_patches(), Symbol::patches} {
  const Shape angles = {rows_, dim(config.head_dim() / 2)};
  pixels_ = graph_.input("pixel_values", DType::f32, {rows_, dim(config.patch_elements())});
  cosine_ = graph_.input("cosine", DType::f32, angles);
  sine_ = graph_.input("sine", DType::f32, angles);
}

ValueId VisionTower::ranges(const std::string& name) {
  return graph_.input(name, DType::i32, {dim(2), rows_});
}

ValueId VisionTower::embed_patches() {
  const std::string name = "visual.patch_embed.proj";
  const int64_t side = config_.patch_size;
  // Every later layer reads what these two make, and they are small: kept as precise as the checkpoint.
  std::vector<ParameterId> parameters = {graph_.parameter(
      name + ".weight", {config_.hidden_size, config_.channels, config_.temporal_patch_size, side, side},
      ParameterRole::sensitive)};
  if (traits_.patch_bias) {
    parameters.push_back(graph_.parameter(name + ".bias", {config_.hidden_size}, ParameterRole::vector));
  }
  const ValueId x = graph_.add(name, op::Linear{}, {pixels_}, std::move(parameters));
  if (config_.position_side == 0) return x;
  const ValueId index = graph_.input("tap_index", DType::i32, {dim(4), rows_});
  const ValueId weight = graph_.input("tap_weight", DType::f32, {dim(4), rows_});
  const ParameterId table = graph_.parameter(
      "visual.pos_embed.weight", {config_.position_side * config_.position_side, config_.hidden_size},
      ParameterRole::sensitive);
  const ValueId positions = graph_.add("visual.pos_embed", op::InterpolateRows{}, {index, weight}, {table});
  return graph_.add("visual.embeddings", op::Add{}, {x, positions});
}

ValueId VisionTower::reorder(const std::string& name, ValueId x, const std::string& order) {
  const Shape shape = graph_.value(x).shape;
  const ValueId cells = graph_.input(order, DType::i32, {patches_dim});
  if (shape.empty() || shape[0] == patches_dim) return graph_.add(name, op::GatherRows{}, {x, cells});
  const int64_t width = config_.merged_patches() * shape.back().value;
  const ValueId by_cell = graph_.add(name + ".cells", op::Reshape{{patches_dim, dim(width)}}, {x});
  const ValueId ordered = graph_.add(name, op::GatherRows{}, {by_cell, cells});
  return graph_.add(name + ".patches", op::Reshape{shape}, {ordered});
}

ValueId VisionTower::linear(const std::string& name, ValueId x, int64_t outputs) {
  const Shape& shape = graph_.value(x).shape;
  const int64_t inputs = shape.empty() ? 0 : shape.back().value;
  return graph_.add(name, op::Linear{}, {x},
                    {graph_.parameter(name + ".weight", {outputs, inputs}, ParameterRole::vision),
                     graph_.parameter(name + ".bias", {outputs}, ParameterRole::vector)});
}

ValueId VisionTower::norm(const std::string& name, ValueId x) {
  const Shape& shape = graph_.value(x).shape;
  const int64_t width = shape.empty() ? 0 : shape.back().value;
  const ParameterId weight = graph_.parameter(name + ".weight", {width}, ParameterRole::vector);
  if (traits_.rms_norms) return graph_.add(name, op::RmsNorm{norm_epsilon, 0}, {x}, {weight});
  return graph_.add(name, op::LayerNorm{norm_epsilon}, {x},
                    {weight, graph_.parameter(name + ".bias", {width}, ParameterRole::vector)});
}

ValueId VisionTower::attention(const std::string& prefix, ValueId x, ValueId ranges) {
  const ValueId qkv = linear(prefix + "qkv", x, 3 * config_.hidden_size);
  const int64_t head_dim = config_.head_dim();
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  const ValueId mixed = graph_.add(prefix + "attention", op::PatchAttention{config_.heads, head_dim, scale},
                                   {qkv, cosine_, sine_, ranges});
  return linear(prefix + "proj", mixed, config_.hidden_size);
}

ValueId VisionTower::block(int64_t index, ValueId x, ValueId ranges, const Mlp& mlp) {
  const std::string prefix = fmt::format("visual.blocks.{}.", index);
  graph_.mark_hidden(x);
  const ValueId mixed = attention(prefix + "attn.", norm(prefix + "norm1", x), ranges);
  x = graph_.add(prefix + "attn_residual", op::Add{}, {x, mixed});
  const ValueId transformed = mlp(prefix + "mlp.", norm(prefix + "norm2", x));
  return graph_.add(prefix + "mlp_residual", op::Add{}, {x, transformed});
}

ValueId VisionTower::plain_mlp(const std::string& first, const std::string& second, ValueId x) {
  const ValueId wide = linear(first, x, config_.intermediate_size);
  const ValueId bent = graph_.add(first + "_gelu", op::Gelu{config_.activation}, {wide});
  return linear(second, bent, config_.hidden_size);
}

ValueId VisionTower::gated_mlp(const std::string& prefix, ValueId x) {
  const ValueId gate = linear(prefix + "gate_proj", x, config_.intermediate_size);
  const ValueId up = linear(prefix + "up_proj", x, config_.intermediate_size);
  const ValueId product = graph_.add(prefix + "silu_multiply", op::SiluMultiply{}, {gate, up});
  return linear(prefix + "down_proj", product, config_.hidden_size);
}

ValueId VisionTower::merge(const MergerNames& names, ValueId x) {
  const int64_t width = config_.merged_patches() * config_.hidden_size;
  const auto view = [&](ValueId value) {
    return graph_.add(names.norm + ".cells", op::Reshape{{patches_dim, dim(width)}}, {value});
  };
  const ValueId cells = names.norm_after_view ? norm(names.norm, view(x)) : view(norm(names.norm, x));
  const ValueId wide = linear(names.first, cells, width);
  const ValueId bent = graph_.add(names.first + "_gelu", op::Gelu{op::Gelu::Kind::erf}, {wide});
  return linear(names.second, bent, config_.output_size);
}

}  // namespace hexlm
