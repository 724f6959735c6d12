#include "models/decoder.hpp"

#include <cmath>
#include <fmt/format.h>
#include <utility>

namespace hexlm {

std::string layer_prefix(int64_t layer) { return fmt::format("layers.{}.", layer); }

Decoder::Decoder(const ModelConfig& config, const DecoderTraits& traits)
    : config_(config.text), traits_(traits), rope_(make_rope(config_.rope, config_.head_dim)) {
  ids_ = graph_.input("ids", DType::i32, {tokens_dim});
  positions_ = graph_.input("positions", DType::i32, {dim(3), tokens_dim});
  rows_ = graph_.input("rows", DType::i32, {rows_dim});
  if (!config.vision) return;
  const Shape features = {patches_dim, dim(config_.hidden_size)};
  image_features_ = graph_.input("image_features", DType::f32, features);
  image_index_ = graph_.input("image_index", DType::i32, {tokens_dim});
  for (size_t level = 0; level < config.vision->deepstack_blocks.size(); ++level) {
    deepstack_.push_back(graph_.input(fmt::format("deepstack.{}", level), DType::f32, features));
  }
}

ValueId Decoder::linear(const std::string& name, ValueId x, int64_t outputs, bool bias, ParameterRole role) {
  const Shape& shape = graph_.value(x).shape;
  const int64_t inputs = shape.empty() ? 0 : shape.back().value;
  std::vector<ParameterId> parameters = {graph_.parameter(name + ".weight", {outputs, inputs}, role)};
  if (bias) parameters.push_back(graph_.parameter(name + ".bias", {outputs}, ParameterRole::vector));
  return graph_.add(name, op::Linear{}, {x}, std::move(parameters));
}

ValueId Decoder::norm(const std::string& name, ValueId x) {
  const Shape& shape = graph_.value(x).shape;
  const int64_t width = shape.empty() ? 0 : shape.back().value;
  const op::RmsNorm op{static_cast<float>(config_.norm_epsilon), traits_.norm_offset};
  return graph_.add(name, op, {x}, {graph_.parameter(name + ".weight", {width}, ParameterRole::vector)});
}

ValueId Decoder::split_heads(const std::string& name, ValueId x, int64_t heads) {
  const Shape& shape = graph_.value(x).shape;
  const int64_t width = shape.empty() ? 0 : shape.back().value;
  return graph_.add(name, op::Reshape{{tokens_dim, dim(heads), dim(heads > 0 ? width / heads : 0)}}, {x});
}

AttentionInputs Decoder::attention_inputs(const std::string& prefix, ValueId hidden, ValueId query) {
  const int64_t width = config_.key_value_heads * config_.head_dim;
  ValueId key = linear(prefix + "k_proj", hidden, width, traits_.projection_bias);
  key = split_heads(prefix + "k_heads", key, config_.key_value_heads);
  if (traits_.head_norms) {
    query = norm(prefix + "q_norm", query);
    key = norm(prefix + "k_norm", key);
  }
  query = graph_.add(prefix + "rope_q", rope_, {query, positions_});
  key = graph_.add(prefix + "rope_k", rope_, {key, positions_});
  const ValueId value = linear(prefix + "v_proj", hidden, width, traits_.projection_bias);
  return {query, key, split_heads(prefix + "v_heads", value, config_.key_value_heads)};
}

ValueId Decoder::attend(const std::string& prefix, const AttentionInputs& inputs) {
  const StateId cache = graph_.state(prefix + "cache", State::Kind::key_value_cache,
                                     {config_.key_value_heads, config_.head_dim});
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
  return graph_.add(prefix + "attention",
                    op::Attention{config_.query_heads, config_.key_value_heads, config_.head_dim, scale},
                    {inputs.query, inputs.key, inputs.value}, {}, cache);
}

ValueId Decoder::attention(int64_t layer, ValueId hidden) {
  const std::string prefix = layer_prefix(layer) + "self_attn.";
  const int64_t width = config_.query_heads * config_.head_dim;
  ValueId query = linear(prefix + "q_proj", hidden, width, traits_.projection_bias);
  query = split_heads(prefix + "q_heads", query, config_.query_heads);
  const ValueId mixed = attend(prefix, attention_inputs(prefix, hidden, query));
  return linear(prefix + "o_proj", mixed, config_.hidden_size, traits_.output_bias);
}

ValueId Decoder::mlp(int64_t layer, ValueId hidden) {
  const std::string prefix = layer_prefix(layer) + "mlp.";
  const ValueId gate = linear(prefix + "gate_proj", hidden, config_.intermediate_size, traits_.mlp_bias);
  const ValueId up = linear(prefix + "up_proj", hidden, config_.intermediate_size, traits_.mlp_bias);
  const ValueId product = graph_.add(prefix + "silu_multiply", op::SiluMultiply{}, {gate, up});
  return linear(prefix + "down_proj", product, config_.hidden_size, traits_.mlp_bias);
}

ValueId Decoder::embed() {
  table_ = graph_.parameter("embed_tokens.weight", {config_.vocabulary_size, config_.hidden_size},
                            ParameterRole::embedding);
  const ValueId x = graph_.add("embed_tokens", op::Embedding{}, {ids_}, {table_});
  if (!image_features_) return x;
  return graph_.add("image_embeds", op::ReplaceRows{}, {x, *image_features_, image_index_});
}

Result<Graph> Decoder::assemble(const Block& mixer, const Block& mlp) {
  ValueId x = embed();
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    const std::string prefix = layer_prefix(layer);
    graph_.mark_hidden(x);
    const ValueId mixed = mixer(layer, norm(prefix + "input_layernorm", x));
    x = graph_.add(prefix + "mixer_residual", op::Add{}, {x, mixed});
    const ValueId transformed = mlp(layer, norm(prefix + "post_attention_layernorm", x));
    x = graph_.add(prefix + "mlp_residual", op::Add{}, {x, transformed});
    if (static_cast<size_t>(layer) < deepstack_.size()) {
      x = graph_.add(prefix + "deepstack", op::AddRows{},
                     {x, deepstack_[static_cast<size_t>(layer)], image_index_});
    }
  }
  x = norm("norm", x);
  graph_.mark_hidden(x);
  // Gathered before the head: at generation one row of logits is wanted, whatever the prompt's length.
  x = graph_.add("gather_rows", op::GatherRows{}, {x, rows_});
  const ParameterId head =
      config_.tied_embeddings
          ? table_
          : graph_.parameter("lm_head.weight", {config_.vocabulary_size, config_.hidden_size},
                             ParameterRole::lm_head);
  graph_.output(graph_.add("lm_head", op::Linear{}, {x}, {head}));
  return std::move(graph_).build();
}

}  // namespace hexlm
