#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "graph/graph.hpp"
#include "models/model_config.hpp"

namespace hexlm {

/// Where the families of the common skeleton (spec A.1) differ.
struct DecoderTraits {
  bool projection_bias = false;  ///< q, k and v
  bool output_bias = false;      ///< o
  bool head_norms = false;       ///< q_norm and k_norm, before rope
  bool mlp_bias = false;
  float norm_offset = 0;  ///< 1 for zero-centred norms
};

/// Query, key and value of a layer, ready for attention: [T, heads, head_dim].
struct AttentionInputs {
  ValueId query;
  ValueId key;
  ValueId value;
};

/// The blocks that decoder definitions are written with. Node names follow the checkpoint's module names; the
/// parameters of a node are named after it.
class Decoder {
 public:
  Decoder(const ModelConfig& config, const DecoderTraits& traits);

  /// The block of a layer: from the normed hidden state [T, H] to what is added to the residual, [T, H].
  using Block = std::function<ValueId(int64_t layer, ValueId hidden)>;
  /// x += mixer(norm(x)); x += mlp(norm(x)) for every layer, between embedding and head. Called once: it
  /// hands the graph over.
  Result<Graph> assemble(const Block& mixer, const Block& mlp);

  ValueId linear(const std::string& name, ValueId x, int64_t outputs, bool bias = false,
                 ParameterRole role = ParameterRole::linear);
  /// Over the last dimension of x, with the family's epsilon and offset.
  ValueId norm(const std::string& name, ValueId x);
  /// `name` of `x` as [T, heads, width / heads].
  ValueId split_heads(const std::string& name, ValueId x, int64_t heads);

  /// k_proj, v_proj, norms and rope of a layer below `prefix`; `query` is the query before norm and rope.
  AttentionInputs attention_inputs(const std::string& prefix, ValueId hidden, ValueId query);
  ValueId attend(const std::string& prefix, const AttentionInputs& inputs);
  /// Softmax attention of a layer (spec A.1).
  ValueId attention(int64_t layer, ValueId hidden);
  /// down(silu(gate(h)) · up(h))
  ValueId mlp(int64_t layer, ValueId hidden);

  const TextConfig& config() const { return config_; }
  GraphBuilder& graph() { return graph_; }

 private:
  /// The embeddings, with the features of images in the places of their tokens.
  ValueId embed();

  const TextConfig& config_;
  DecoderTraits traits_;
  op::Rope rope_;
  GraphBuilder graph_;
  ValueId ids_;
  ValueId positions_;
  ValueId rows_;
  /// None in a model without vision.
  std::optional<ValueId> image_features_;
  ValueId image_index_;
  std::vector<ValueId> deepstack_;
  ParameterId table_;
};

/// "layers.3."
std::string layer_prefix(int64_t layer);

}  // namespace hexlm
