#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "models/decoder.hpp"
#include "models/registry.hpp"

namespace hexlm {
namespace {

/// Spec A.2: sparse iff not listed in mlp_only_layers and (layer + 1) is a multiple of decoder_sparse_step.
bool is_sparse(const TextConfig& config, int64_t layer) {
  const auto& dense = config.dense_layers;
  return config.experts > 0 && std::find(dense.begin(), dense.end(), layer) == dense.end() &&
         (layer + 1) % std::max<int64_t>(config.decoder_sparse_step, 1) == 0;
}

ValueId experts(Decoder& decoder, int64_t layer, ValueId hidden) {
  const TextConfig& config = decoder.config();
  const std::string prefix = layer_prefix(layer) + "mlp.";
  const ValueId router =
      decoder.linear(prefix + "gate", hidden, config.experts, false, ParameterRole::sensitive);
  std::vector<ParameterId> matrices;
  for (int64_t expert = 0; expert < config.experts; ++expert) {
    const std::string name = fmt::format("{}experts.{}.", prefix, expert);
    const int64_t width = config.expert_intermediate_size;
    GraphBuilder& graph = decoder.graph();
    matrices.push_back(
        graph.parameter(name + "gate_proj.weight", {width, config.hidden_size}, ParameterRole::linear));
    matrices.push_back(
        graph.parameter(name + "up_proj.weight", {width, config.hidden_size}, ParameterRole::linear));
    matrices.push_back(
        graph.parameter(name + "down_proj.weight", {config.hidden_size, width}, ParameterRole::linear));
  }
  return decoder.graph().add(prefix + "experts",
                             op::MixtureOfExperts{config.experts, config.experts_per_token,
                                                  config.expert_intermediate_size, config.normalize_top_k},
                             {hidden, router}, std::move(matrices));
}

}  // namespace

/// qwen3 with a mixture of experts in place of the MLP of sparse layers (spec A.2).
Result<Graph> build_qwen3_moe(const ModelConfig& config) {
  const TextConfig& text = config.text;
  Decoder decoder(
      config,
      {.projection_bias = text.attention_bias, .output_bias = text.attention_bias, .head_norms = true});
  return decoder.assemble([&](int64_t layer, ValueId hidden) { return decoder.attention(layer, hidden); },
                          [&](int64_t layer, ValueId hidden) {
                            return is_sparse(text, layer) ? experts(decoder, layer, hidden)
                                                          : decoder.mlp(layer, hidden);
                          });
}

}  // namespace hexlm
