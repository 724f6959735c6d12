#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sample_configs.hpp"

namespace hexlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Type = RopeConfig::Type;

TEST(Config, ReadsTheCommonKeys) {
  const ModelConfig config = parsed(small_config("qwen3"));
  EXPECT_EQ(config.model_type, "qwen3");
  EXPECT_EQ(config.text.model_type, "qwen3");
  EXPECT_EQ(config.text.hidden_size, 64);
  EXPECT_EQ(config.text.intermediate_size, 96);
  EXPECT_EQ(config.text.layers, 4);
  EXPECT_EQ(config.text.query_heads, 4);
  EXPECT_EQ(config.text.key_value_heads, 2);
  EXPECT_EQ(config.text.head_dim, 32);
  EXPECT_EQ(config.text.vocabulary_size, 128);
  EXPECT_EQ(config.text.max_positions, 4096);
  EXPECT_DOUBLE_EQ(config.text.norm_epsilon, 1e-5);
  EXPECT_EQ(config.source["hidden_size"], 64);
  EXPECT_FALSE(config.has_vision);
  EXPECT_EQ(config.text.layer_types, std::vector<LayerType>(4, LayerType::full_attention));
}

TEST(Config, ReadsBothSpellingsOfDtype) {
  Json json = small_config("llama");
  EXPECT_EQ(parsed(json).dtype, "");
  json["torch_dtype"] = "float16";
  EXPECT_EQ(parsed(json).dtype, "float16");
  json["dtype"] = "bfloat16";
  EXPECT_EQ(parsed(json).dtype, "bfloat16");
}

TEST(Config, ReadsDtypeOfTheTextPartLast) {
  Json json = {{"model_type", "qwen3_5"}, {"text_config", small_config("qwen3_5_text")}};
  json["text_config"]["dtype"] = "float32";
  EXPECT_EQ(parsed(json).dtype, "float32");
  json["torch_dtype"] = "bfloat16";
  EXPECT_EQ(parsed(json).dtype, "bfloat16");
}

TEST(Config, TakesNullAsMissing) {
  Json json = small_config("llama");
  json["num_key_value_heads"] = nullptr;
  json["head_dim"] = nullptr;
  json["rope_scaling"] = nullptr;
  json["sliding_window"] = nullptr;
  json["bos_token_id"] = nullptr;
  const ModelConfig config = parsed(json);
  EXPECT_EQ(config.text.key_value_heads, 4);
  EXPECT_EQ(config.text.head_dim, 16);
  EXPECT_FALSE(config.text.bos_token);
}

TEST(Config, FallsBackToQueryHeads) {
  Json json = small_config("qwen2");
  json.erase("num_key_value_heads");
  EXPECT_EQ(parsed(json).text.key_value_heads, 4);
}

TEST(Config, DerivesHeadDimAsTheFamilyDoes) {
  const auto head_dim = [](const char* type) {
    Json json = small_config(type);
    json.erase("head_dim");
    json.erase("rope_parameters");
    return parsed(json).text.head_dim;
  };
  EXPECT_EQ(head_dim("llama"), 16);
  EXPECT_EQ(head_dim("qwen2"), 16);
  EXPECT_EQ(head_dim("qwen3"), 128);
  EXPECT_EQ(head_dim("qwen3_moe"), 16);
  EXPECT_EQ(head_dim("qwen3_5_text"), 256);
}

TEST(Config, ReadsTokens) {
  Json json = small_config("llama");
  json["bos_token_id"] = 1;
  json["eos_token_id"] = 2;
  EXPECT_EQ(parsed(json).text.bos_token, 1);
  EXPECT_THAT(parsed(json).text.eos_tokens, ElementsAre(2));
  json["eos_token_id"] = {5, 7};
  EXPECT_THAT(parsed(json).text.eos_tokens, ElementsAre(5, 7));
  json.erase("eos_token_id");
  EXPECT_THAT(parsed(json).text.eos_tokens, IsEmpty());
}

TEST(Config, ReadsEndTokensOfEitherLevel) {
  Json json = {{"model_type", "qwen3_5"}, {"text_config", small_config("qwen3_5_text")}, {"eos_token_id", 3}};
  EXPECT_THAT(parsed(json).text.eos_tokens, ElementsAre(3));
  json["text_config"]["eos_token_id"] = 9;
  EXPECT_THAT(parsed(json).text.eos_tokens, ElementsAre(9));
}

TEST(Config, ReadsTheTieFlagOfEitherLevel) {
  Json json = {{"model_type", "qwen3_5"}, {"text_config", small_config("qwen3_5_text")}};
  EXPECT_FALSE(parsed(json).text.tied_embeddings);
  json["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(parsed(json).text.tied_embeddings);
  json["tie_word_embeddings"] = false;
  EXPECT_FALSE(parsed(json).text.tied_embeddings);
  json["tie_word_embeddings"] = true;
  json["text_config"]["tie_word_embeddings"] = false;
  EXPECT_TRUE(parsed(json).text.tied_embeddings);
}

TEST(Config, TiesWhenTheCheckpointHasNoHead) {
  ModelConfig config = parsed(small_config("llama"));
  apply_checkpoint_facts(config, true);
  EXPECT_FALSE(config.text.tied_embeddings);
  apply_checkpoint_facts(config, false);
  EXPECT_TRUE(config.text.tied_embeddings);
  apply_checkpoint_facts(config, true);
  EXPECT_TRUE(config.text.tied_embeddings);
}

TEST(Config, ReadsBiases) {
  Json json = small_config("llama");
  json["attention_bias"] = true;
  json["mlp_bias"] = true;
  EXPECT_TRUE(parsed(json).text.attention_bias);
  EXPECT_TRUE(parsed(json).text.mlp_bias);
  json["model_type"] = "qwen3";
  EXPECT_FALSE(parsed(json).text.mlp_bias);
}

TEST(Config, PlacesFullAttentionEveryFourthLayer) {
  Json json = small_config("qwen3_5_text");
  json["num_hidden_layers"] = 9;
  constexpr auto full = LayerType::full_attention;
  constexpr auto linear = LayerType::linear_attention;
  EXPECT_THAT(parsed(json).text.layer_types,
              ElementsAre(linear, linear, linear, full, linear, linear, linear, full, linear));
  json["full_attention_interval"] = 3;
  EXPECT_THAT(parsed(json).text.layer_types,
              ElementsAre(linear, linear, full, linear, linear, full, linear, linear, full));
}

TEST(Config, TakesListedLayerTypesFirst) {
  Json json = small_config("qwen3_5_text");
  json["full_attention_interval"] = 2;
  json["layer_types"] = {"full_attention", "linear_attention", "linear_attention", "full_attention"};
  EXPECT_THAT(parsed(json).text.layer_types,
              ElementsAre(LayerType::full_attention, LayerType::linear_attention, LayerType::linear_attention,
                          LayerType::full_attention));
}

TEST(Config, ReadsBothSpellingsOfExperts) {
  Json json = small_config("qwen3_moe");
  const TextConfig text = parsed(json).text;
  EXPECT_EQ(text.experts, 4);
  EXPECT_EQ(text.experts_per_token, 2);
  EXPECT_EQ(text.expert_intermediate_size, 48);
  EXPECT_TRUE(text.normalize_top_k);
  json.erase("num_experts");
  json["num_local_experts"] = 8;
  EXPECT_EQ(parsed(json).text.experts, 8);
  json["num_experts"] = 8;
  EXPECT_EQ(parsed(json).text.experts, 8);
  json["decoder_sparse_step"] = 2;
  json["mlp_only_layers"] = {1};
  json["norm_topk_prob"] = false;
  EXPECT_EQ(parsed(json).text.decoder_sparse_step, 2);
  EXPECT_THAT(parsed(json).text.dense_layers, ElementsAre(1));
  EXPECT_FALSE(parsed(json).text.normalize_top_k);
}

TEST(Config, AllowsDenseMixtures) {
  Json json = small_config("qwen3_moe");
  json["num_experts"] = 0;
  json.erase("num_experts_per_tok");
  json.erase("moe_intermediate_size");
  EXPECT_EQ(parsed(json).text.experts, 0);
}

TEST(Config, IgnoresWhatChangesNothing) {
  Json json = small_config("qwen3_5_text");
  json.update(json_of(R"({"mamba_ssm_dtype": "float32", "output_gate_type": "swish", "attn_output_gate": true,
      "mtp_num_hidden_layers": 1, "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28,
      "attention_dropout": 0.1, "pretraining_tp": 2, "use_cache": false, "hidden_act": "swish",
      "language_model_only": true, "initializer_range": 0.02, "something_new": {"a": [1]}})"));
  EXPECT_EQ(config_error(json), "no error");
  // Without a window there is nothing to slide.
  json["use_sliding_window"] = true;
  json["sliding_window"] = nullptr;
  EXPECT_EQ(config_error(json), "no error");
}

TEST(Config, ReadsNestedTextPart) {
  Json json = {{"model_type", "qwen3_5"}, {"text_config", small_config("qwen3_5_text")}};
  ModelConfig config = parsed(json);
  EXPECT_EQ(config.model_type, "qwen3_5");
  EXPECT_EQ(config.text.model_type, "qwen3_5_text");
  EXPECT_EQ(config.text.linear_value_heads, 4);
  EXPECT_EQ(config.text.linear_value_dim, 8);
  EXPECT_EQ(config.text.convolution_taps, 4);
  EXPECT_FALSE(config.has_vision);
  json["vision_config"] = Json::object();
  EXPECT_TRUE(parsed(json).has_vision);
  json["language_model_only"] = true;
  EXPECT_FALSE(parsed(json).has_vision);
}

TEST(Config, ReadsFlatTextPartOfOlderVisionCheckpoints) {
  Json json = small_config("qwen2_vl");
  json["rope_scaling"] = json_of(R"({"type": "mrope", "mrope_section": [4, 6, 6]})");
  json["vision_config"] = json_of(R"({"depth": 2, "hidden_size": 999})");
  const ModelConfig config = parsed(json);
  EXPECT_TRUE(config.has_vision);
  EXPECT_EQ(config.text.model_type, "qwen2");
  EXPECT_EQ(config.text.hidden_size, 64);
  EXPECT_EQ(config.text.rope.type, Type::standard);
  EXPECT_FALSE(config.text.rope.mrope_interleaved);
  EXPECT_THAT(config.text.rope.mrope_section, ElementsAre(4, 6, 6));
}

TEST(ConfigRope, MergesOldAndNewKeys) {
  Json json = small_config("llama");
  EXPECT_DOUBLE_EQ(parsed(json).text.rope.theta, 10000);
  json["rope_scaling"] = json_of(R"({"type": "linear", "factor": 2.0, "rope_theta": 20000})");
  EXPECT_EQ(parsed(json).text.rope.type, Type::linear);
  EXPECT_DOUBLE_EQ(parsed(json).text.rope.factor, 2);
  EXPECT_DOUBLE_EQ(parsed(json).text.rope.theta, 20000);
  json["rope_parameters"] = json_of(R"({"rope_type": "default", "rope_theta": 30000})");
  EXPECT_EQ(parsed(json).text.rope.type, Type::standard);
  EXPECT_DOUBLE_EQ(parsed(json).text.rope.theta, 30000);
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"].erase("rope_theta");
  EXPECT_DOUBLE_EQ(parsed(json).text.rope.theta, 10000);
}

TEST(ConfigRope, PrefersRopeTypeToType) {
  Json json = small_config("llama");
  json["rope_scaling"] = json_of(R"({"rope_type": "linear", "type": "dynamic", "factor": 4})");
  EXPECT_EQ(parsed(json).text.rope.type, Type::linear);
}

TEST(ConfigRope, ReadsYarn) {
  Json json = small_config("qwen2");
  json["rope_scaling"] =
      json_of(R"({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024})");
  RopeConfig rope = parsed(json).text.rope;
  EXPECT_EQ(rope.type, Type::yarn);
  EXPECT_EQ(rope.original_max_position, 1024);
  EXPECT_DOUBLE_EQ(rope.beta_fast, 32);
  EXPECT_DOUBLE_EQ(rope.beta_slow, 1);
  EXPECT_TRUE(rope.truncate);
  EXPECT_FALSE(rope.attention_factor || rope.mscale || rope.mscale_all_dim);

  json["rope_scaling"] = json_of(R"({"type": "yarn", "factor": 40, "beta_fast": 16, "beta_slow": 2,
      "truncate": false, "mscale": 1.0, "mscale_all_dim": 0.707, "attention_factor": 1.5})");
  rope = parsed(json).text.rope;
  // Without its own key it is the context that the model has.
  EXPECT_EQ(rope.original_max_position, 4096);
  EXPECT_DOUBLE_EQ(rope.beta_fast, 16);
  EXPECT_DOUBLE_EQ(rope.beta_slow, 2);
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(rope.mscale, 1.0);
  EXPECT_EQ(rope.mscale_all_dim, 0.707);
  EXPECT_EQ(rope.attention_factor, 1.5);
}

TEST(ConfigRope, ReadsLlama3) {
  Json json = small_config("llama");
  json["rope_scaling"] = json_of(R"({"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})");
  const RopeConfig rope = parsed(json).text.rope;
  EXPECT_EQ(rope.type, Type::llama3);
  EXPECT_DOUBLE_EQ(rope.factor, 32);
  EXPECT_DOUBLE_EQ(rope.low_freq_factor, 1);
  EXPECT_DOUBLE_EQ(rope.high_freq_factor, 4);
  EXPECT_EQ(rope.original_max_position, 8192);
}

TEST(ConfigRope, ReadsThePartialFactorFromEitherPlace) {
  Json json = small_config("qwen3_5_text");
  EXPECT_DOUBLE_EQ(parsed(json).text.rope.partial_rotary_factor, 0.25);
  json["partial_rotary_factor"] = 0.5;
  json["rope_parameters"].erase("mrope_section");
  EXPECT_DOUBLE_EQ(parsed(json).text.rope.partial_rotary_factor, 0.5);
  json["rope_parameters"]["partial_rotary_factor"] = 1.0;
  EXPECT_DOUBLE_EQ(parsed(json).text.rope.partial_rotary_factor, 1);
}

TEST(ConfigRope, InterleavesWhateverTheKeySays) {
  Json json = small_config("qwen3_5_text");
  json["rope_parameters"]["mrope_interleaved"] = false;
  EXPECT_TRUE(parsed(json).text.rope.mrope_interleaved);
  EXPECT_THAT(parsed(json).text.rope.mrope_section, ElementsAre(2, 1, 1));
  json["rope_parameters"].erase("mrope_section");
  EXPECT_THAT(parsed(json).text.rope.mrope_section, ElementsAre(11, 11, 10));
}

TEST(Config, ListsSupportedTypes) {
  const std::vector<std::string> types = supported_model_types();
  for (const char* type : {"llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_text"}) {
    EXPECT_NE(std::find(types.begin(), types.end(), type), types.end()) << type;
  }
}

}  // namespace
}  // namespace hexlm
