#include "models/decoder.hpp"
#include "models/registry.hpp"

namespace hexlm {

/// llama, qwen2 and qwen3 are one decoder (spec A.2, C): qwen2 has biases on q, k and v by class, without a
/// key; llama and qwen3 read `attention_bias` for q, k, v and o; qwen3 norms its heads; llama reads
/// `mlp_bias`.
Result<Graph> build_dense_decoder(const ModelConfig& config) {
  const TextConfig& text = config.text;
  const bool qwen2 = text.model_type == "qwen2";
  const DecoderTraits traits = {.projection_bias = qwen2 || text.attention_bias,
                                .output_bias = !qwen2 && text.attention_bias,
                                .head_norms = text.model_type == "qwen3",
                                .mlp_bias = text.mlp_bias};
  Decoder decoder(config, traits);
  return decoder.assemble([&](int64_t layer, ValueId hidden) { return decoder.attention(layer, hidden); },
                          [&](int64_t layer, ValueId hidden) { return decoder.mlp(layer, hidden); });
}

}  // namespace hexlm
