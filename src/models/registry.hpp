#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "graph/graph.hpp"
#include "models/model_config.hpp"

namespace hexlm {

/// How a family spreads its rotary frequencies over the position streams (spec A.1, "M-RoPE").
enum class MropeLayout : uint8_t { none, chunked, interleaved };

/// What config parsing must know about a family's vision tower. Sizes are those of the configuration class in
/// transformers, for keys that a file leaves out.
struct VisionFamily {
  int64_t depth = 0;
  int64_t hidden_size = 0;
  int64_t heads = 16;
  int64_t mlp_ratio = 0;          ///< MLP width over the tower's, where the file says it so
  int64_t intermediate_size = 0;  ///< MLP width otherwise
  int64_t output_size = 0;
  int64_t patch_size = 0;
  std::string_view activation;
  bool gated_mlp = false;
  int64_t position_embeddings = 0;  ///< 0: no table
  int64_t window_size = 0;          ///< pixels; 0: no windows
  bool deepstack = false;
  int32_t image_token = 0;
  Result<Graph> (*build)(const VisionConfig& config) = nullptr;
};

/// One `model_type` and what config parsing must know about it.
struct ModelFamily {
  std::string_view model_type;
  std::string_view text_type;  ///< TextConfig::model_type
  bool multimodal = false;     ///< text keys lie in `text_config`, tensors below `model.language_model.`
  MropeLayout mrope = MropeLayout::none;
  std::array<int64_t, 3> mrope_section{};  ///< when the key is missing; zeros: the key is required
  int64_t head_dim = 0;                    ///< when the key is missing; 0: hidden_size / num_attention_heads
  double partial_rotary_factor = 1;        ///< when the key is missing; 1: the family has no partial rotation
  bool delta_net = false;                  ///< reads linear_* and layer_types
  bool sparse = false;                     ///< reads the expert keys
  const VisionFamily* vision = nullptr;
  Result<Graph> (*build)(const ModelConfig& config) = nullptr;
};

/// nullptr when there is no definition.
const ModelFamily* find_family(std::string_view model_type);
/// unsupported, with the supported list and the nearest as hint.
Error unknown_model_type(std::string_view model_type, const std::string& origin);

Result<Graph> build_dense_decoder(const ModelConfig& config);  // llama.cpp
Result<Graph> build_qwen3_moe(const ModelConfig& config);      // qwen3_moe.cpp
Result<Graph> build_qwen3_5(const ModelConfig& config);        // qwen3_5.cpp

Result<Graph> build_qwen2_vl_tower(const VisionConfig& config);    // qwen2_vl_tower.cpp
Result<Graph> build_qwen2_5_vl_tower(const VisionConfig& config);  // qwen2_vl_tower.cpp
Result<Graph> build_qwen3_vl_tower(const VisionConfig& config);    // qwen3_vl_tower.cpp

}  // namespace hexlm
