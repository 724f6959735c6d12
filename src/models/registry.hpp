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
  Result<Graph> (*build)(const ModelConfig& config) = nullptr;
};

/// nullptr when there is no definition.
const ModelFamily* find_family(std::string_view model_type);
/// unsupported, with the supported list and the nearest as hint.
Error unknown_model_type(std::string_view model_type, const std::string& origin);

Result<Graph> build_dense_decoder(const ModelConfig& config);  // llama.cpp
Result<Graph> build_qwen3_moe(const ModelConfig& config);      // qwen3_moe.cpp
Result<Graph> build_qwen3_5(const ModelConfig& config);        // qwen3_5.cpp

}  // namespace hexlm
