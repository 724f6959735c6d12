#pragma once

#include <gtest/gtest.h>
#include <string>

#include "formats/json.hpp"
#include "models/model_config.hpp"
#include "support/test_data.hpp"

namespace hexlm {

inline Json json_of(const std::string& text) {
  auto json = parse_json(text, "test");
  if (!json) ADD_FAILURE() << json.error().message;
  return json ? *json : Json::object();
}

/// The keys that every family needs, for `model_type`: 64 wide, 4 layers, 4 query and 2 key/value heads.
inline Json small_config(const std::string& model_type) {
  Json json = json_of(R"({"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 128,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0})");
  json["model_type"] = model_type;
  if (model_type == "qwen3_moe") {
    json.update(json_of(R"({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
        "norm_topk_prob": true})"));
  }
  if (model_type == "qwen3_5_text") {
    json.update(json_of(R"({"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
        "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4})"));
    json["rope_parameters"] = json_of(R"({"mrope_section": [2, 1, 1]})");
  }
  return json;
}

/// Parses what must be right.
inline ModelConfig parsed(const Json& json) {
  auto config = parse_model_config(json, "config.json");
  if (!config) ADD_FAILURE() << config.error().message;
  return config ? *config : ModelConfig{};
}

/// "code: message" of what must be wrong, or "no error".
inline std::string config_error(const Json& json) {
  const auto config = parse_model_config(json, "config.json");
  if (config) return "no error";
  return std::string(to_string(config.error().code)) + ": " + config.error().message;
}

inline Graph built(const ModelConfig& config) {
  auto graph = build_text_graph(config);
  if (!graph) ADD_FAILURE() << graph.error().message;
  return graph ? *std::move(graph) : Graph{};
}

inline ModelConfig config_file(const std::string& name) {
  auto json = read_json(test_data(name));
  if (!json) ADD_FAILURE() << json.error().message;
  return json ? parsed(*json) : ModelConfig{};
}

}  // namespace hexlm
