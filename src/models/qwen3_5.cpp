#include "models/decoder.hpp"
#include "models/registry.hpp"

namespace hexlm {
namespace {

/// Spec A.3: q_proj's rows are, head by head, the query and then the gate of that head.
ValueId gated_attention(Decoder& decoder, int64_t layer, ValueId hidden) {
  const TextConfig& config = decoder.config();
  const std::string prefix = layer_prefix(layer) + "self_attn.";
  const int64_t width = config.query_heads * config.head_dim;
  GraphBuilder& graph = decoder.graph();
  const ValueId packed = decoder.split_heads(
      prefix + "q_heads", decoder.linear(prefix + "q_proj", hidden, 2 * width, config.attention_bias),
      config.query_heads);
  const ValueId query = graph.add(prefix + "query", op::Slice{0, config.head_dim}, {packed});
  const ValueId gate_heads =
      graph.add(prefix + "gate_heads", op::Slice{config.head_dim, 2 * config.head_dim}, {packed});
  const ValueId gate = graph.add(prefix + "gate", op::Reshape{{tokens_dim, dim(width)}}, {gate_heads});
  const ValueId mixed = decoder.attend(prefix, decoder.attention_inputs(prefix, hidden, query));
  const ValueId gated = graph.add(prefix + "sigmoid_multiply", op::SigmoidMultiply{}, {mixed, gate});
  return decoder.linear(prefix + "o_proj", gated, config.hidden_size, config.attention_bias);
}

/// Spec A.4.
ValueId delta_net(Decoder& decoder, int64_t layer, ValueId hidden) {
  const TextConfig& config = decoder.config();
  const std::string prefix = layer_prefix(layer) + "linear_attn.";
  const int64_t value_heads = config.linear_value_heads;
  const int64_t value_width = value_heads * config.linear_value_dim;
  const int64_t channels = 2 * config.linear_key_heads * config.linear_key_dim + value_width;
  GraphBuilder& graph = decoder.graph();

  ValueId qkv = decoder.linear(prefix + "in_proj_qkv", hidden, channels);
  const ParameterId taps = graph.parameter(prefix + "conv1d.weight", {channels, 1, config.convolution_taps},
                                           ParameterRole::vector);
  const StateId history =
      graph.state(prefix + "conv_state", State::Kind::convolution, {channels, config.convolution_taps - 1});
  qkv = graph.add(prefix + "conv1d", op::CausalConvolution{config.convolution_taps}, {qkv}, {taps}, history);

  // beta and the decay are exponentiated or accumulated over the whole context, so their error grows.
  const ValueId beta =
      decoder.linear(prefix + "in_proj_b", hidden, value_heads, false, ParameterRole::sensitive);
  const ValueId decay =
      decoder.linear(prefix + "in_proj_a", hidden, value_heads, false, ParameterRole::sensitive);
  const StateId memory = graph.state(prefix + "recurrent_state", State::Kind::delta_net,
                                     {value_heads, config.linear_key_dim, config.linear_value_dim});
  const op::GatedDeltaNet rule = {.key_heads = config.linear_key_heads,
                                  .value_heads = value_heads,
                                  .key_dim = config.linear_key_dim,
                                  .value_dim = config.linear_value_dim};
  const ValueId mixed = graph.add(prefix + "delta_net", rule, {qkv, beta, decay},
                                  {graph.parameter(prefix + "A_log", {value_heads}, ParameterRole::vector),
                                   graph.parameter(prefix + "dt_bias", {value_heads}, ParameterRole::vector)},
                                  memory);

  const ValueId heads = decoder.split_heads(prefix + "heads", mixed, value_heads);
  const ValueId gate = decoder.split_heads(
      prefix + "z_heads", decoder.linear(prefix + "in_proj_z", hidden, value_width), value_heads);
  const ValueId normed =
      graph.add(prefix + "norm", op::GatedRmsNorm{static_cast<float>(config.norm_epsilon)}, {heads, gate},
                {graph.parameter(prefix + "norm.weight", {config.linear_value_dim}, ParameterRole::vector)});
  const ValueId flat = graph.add(prefix + "normed", op::Reshape{{tokens_dim, dim(value_width)}}, {normed});
  return decoder.linear(prefix + "out_proj", flat, config.hidden_size);
}

}  // namespace

/// Gated delta nets with gated softmax attention every few layers. All norms but the delta net's own are
/// zero-centred (spec A.1).
Result<Graph> build_qwen3_5(const ModelConfig& config) {
  const TextConfig& text = config.text;
  Decoder decoder(config, {.projection_bias = text.attention_bias,
                           .output_bias = text.attention_bias,
                           .head_norms = true,
                           .norm_offset = 1});
  return decoder.assemble(
      [&](int64_t layer, ValueId hidden) {
        return text.layer_types[static_cast<size_t>(layer)] == LayerType::linear_attention
                   ? delta_net(decoder, layer, hidden)
                   : gated_attention(decoder, layer, hidden);
      },
      [&](int64_t layer, ValueId hidden) { return decoder.mlp(layer, hidden); });
}

}  // namespace hexlm
