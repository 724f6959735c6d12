#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "formats/checkpoint_weights.hpp"
#include "models/model_config.hpp"
#include "sample_configs.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

const std::vector<std::string> vision_cases = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5_vl"};

Json reference_config(const std::string& name) {
  auto json = read_json(test_data("reference/" + name + "/checkpoint/config.json"));
  if (!json) ADD_FAILURE() << json.error().message;
  return json ? *std::move(json) : Json::object();
}

/// "code: message" of what must be wrong with the vision part, or "no error".
std::string vision_error(const Json& json) {
  auto config = parse_model_config(json, "config.json");
  if (!config) return "text: " + config.error().message;
  const Status status = resolve_vision(*config, true, "config.json");
  if (status) return "no error";
  return std::string(to_string(status.error().code)) + ": " + status.error().message;
}

ModelConfig resolved(const Json& json) {
  ModelConfig config = parsed(json);
  const Status status = resolve_vision(config, true, "config.json");
  EXPECT_TRUE(status) << status.error().message;
  return config;
}

Graph tower_of(const ModelConfig& config) {
  auto graph = build_vision_graph(config);
  if (!graph) ADD_FAILURE() << graph.error().message;
  return graph ? *std::move(graph) : Graph{};
}

/// Text and vision graph together need the checkpoint's tensors, no more and no fewer.
TEST(VisionTower, ParametersAreTheCheckpoints) {
  for (const std::string& name : vision_cases) {
    SCOPED_TRACE(name);
    const auto weights = CheckpointWeights::open(test_data("reference/" + name + "/checkpoint"));
    ASSERT_TRUE(weights);
    ModelConfig config = resolved(reference_config(name));
    apply_checkpoint_facts(config, (*weights)->contains("lm_head.weight"));
    std::set<std::string> names;
    for (const Graph& graph : {built(config), tower_of(config)}) {
      for (const Parameter& parameter : graph.parameters()) {
        names.insert(parameter.name);
        const auto weight = (*weights)->find(parameter.name);
        ASSERT_TRUE(weight) << parameter.name;
        EXPECT_EQ(weight->shape, parameter.shape) << parameter.name;
      }
    }
    const std::vector<std::string> all = (*weights)->names();
    EXPECT_EQ(names, std::set<std::string>(all.begin(), all.end()));
  }
}

TEST(VisionTower, PublishedShapesBuild) {
  Json json = reference_config("qwen3_vl");
  // Qwen3-VL-8B: head_dim 72.
  json["vision_config"] =
      json_of(R"({"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16,
      "num_position_embeddings": 2304, "out_hidden_size": 128, "patch_size": 16, "spatial_merge_size": 2,
      "temporal_patch_size": 2, "deepstack_visual_indexes": [8, 16, 24], "hidden_act": "gelu_pytorch_tanh"})");
  const ModelConfig config = resolved(json);
  EXPECT_EQ(config.vision->head_dim(), 72);
  EXPECT_EQ(config.vision->position_side, 48);
  const Graph tower = tower_of(config);
  EXPECT_EQ(tower.outputs().size(), 4U);
  EXPECT_EQ(to_string(tower.value(tower.outputs()[0]).shape), "[V, 128]");
  EXPECT_EQ(to_string(tower.value(tower.inputs()[0]).shape), "[4V, 1536]");
  // 351 tensors of the published checkpoint.
  EXPECT_EQ(tower.parameters().size(), 351U);
  // One more input a level, and one AddRows after each of the first layers.
  const Graph text = built(config);
  EXPECT_EQ(text.inputs().size(), 8U);
  EXPECT_EQ(text.value(text.inputs().back()).name, "deepstack.2");
}

TEST(VisionTower, DefaultsAreTheClassesOwn) {
  Json json = reference_config("qwen2_5_vl");
  json["vision_config"] = json_of(R"({"out_hidden_size": 128})");
  const ModelConfig config = resolved(json);
  EXPECT_EQ(config.vision->depth, 32);
  EXPECT_EQ(config.vision->intermediate_size, 3420);
  EXPECT_EQ(config.vision->window_cells, 4);
  EXPECT_EQ(config.vision->full_attention_blocks, (std::vector<int64_t>{7, 15, 23, 31}));
  json = reference_config("qwen2_vl");
  EXPECT_EQ(resolved(json).vision->intermediate_size, 128);
}

TEST(VisionTower, WithoutItsWeightsAModelIsTextOnly) {
  ModelConfig config = parsed(reference_config("qwen3_5_vl"));
  ASSERT_TRUE(resolve_vision(config, false, "config.json"));
  EXPECT_FALSE(config.has_vision);
  EXPECT_FALSE(config.vision);
  EXPECT_EQ(built(config).inputs().size(), 3U);
  EXPECT_EQ(build_vision_graph(config).error().code, ErrorCode::runtime);
}

struct BadConfig {
  const char* family;
  const char* patch;  ///< merged into vision_config
  const char* message;
};

class BadVisionConfig : public testing::TestWithParam<BadConfig> {};

TEST_P(BadVisionConfig, IsAnErrorThatNamesTheKey) {
  Json json = reference_config(GetParam().family);
  json["vision_config"].merge_patch(json_of(GetParam().patch));
  EXPECT_THAT(vision_error(json), HasSubstr(GetParam().message)) << GetParam().patch;
}

INSTANTIATE_TEST_SUITE_P(
    Keys, BadVisionConfig,
    testing::Values(
        BadConfig{"qwen3_5_vl", R"({"depth": 0})", "'vision_config.depth' is 0, expected an integer of 1"},
        BadConfig{"qwen3_5_vl", R"({"depth": -3})", "bad_input: config.json: 'vision_config.depth' is -3"},
        BadConfig{"qwen3_5_vl", R"({"depth": 1e30})", "'vision_config.depth'"},
        BadConfig{"qwen3_5_vl", R"({"depth": "four"})", "'vision_config.depth' is \"four\""},
        BadConfig{"qwen3_5_vl", R"({"patch_size": 0})", "'vision_config.patch_size' is 0"},
        BadConfig{"qwen3_5_vl", R"({"patch_size": 100000})", "'vision_config.patch_size' is 100000"},
        BadConfig{"qwen3_5_vl", R"({"temporal_patch_size": 0})", "'vision_config.temporal_patch_size' is 0"},
        BadConfig{"qwen3_5_vl", R"({"spatial_merge_size": 0})", "'vision_config.spatial_merge_size' is 0"},
        BadConfig{"qwen3_5_vl", R"({"num_heads": 0})", "'vision_config.num_heads' is 0"},
        BadConfig{"qwen3_5_vl", R"({"num_heads": 3})", "expected num_heads, 3, times a multiple of 4"},
        BadConfig{"qwen3_5_vl", R"({"num_heads": 32})", "'vision_config.hidden_size' is 64"},
        BadConfig{"qwen3_5_vl", R"({"in_channels": 1})", "'vision_config.in_channels' is 1, expected 3"},
        BadConfig{"qwen3_5_vl", R"({"out_hidden_size": 64})",
                  "expected the language model's hidden_size, 128"},
        BadConfig{"qwen3_5_vl", R"({"hidden_act": "relu"})",
                  "unsupported: config.json: 'vision_config.hidden_act'"},
        BadConfig{"qwen3_5_vl", R"({"num_position_embeddings": 65})", "is 65, expected a square number"},
        BadConfig{"qwen3_5_vl", R"({"deepstack_visual_indexes": [1]})", "expected none in qwen3_5"},
        BadConfig{"qwen3_5_vl", R"({"rope_parameters": {"rope_theta": 0}})",
                  "rope_parameters.rope_theta' is 0"},
        BadConfig{"qwen3_vl", R"({"deepstack_visual_indexes": [2, 1]})", "expected rising blocks"},
        BadConfig{"qwen3_vl", R"({"deepstack_visual_indexes": [1, 4]})", "deepstack_visual_indexes"},
        BadConfig{"qwen2_5_vl", R"({"window_size": 20})",
                  "expected at least patch_size times spatial_merge_size, 28"},
        BadConfig{"qwen2_5_vl", R"({"hidden_act": "gelu"})", "is 'gelu', expected silu"},
        BadConfig{"qwen2_vl", R"({"mlp_ratio": 0})", "'vision_config.mlp_ratio' is 0"}));

TEST(VisionTower, RefusesImageTokensBeyondTheVocabularyAndOtherTypes) {
  Json json = reference_config("qwen3_5_vl");
  json["image_token_id"] = 512;
  EXPECT_THAT(vision_error(json), HasSubstr("'image_token_id' is 512, expected an id below vocab_size, 512"));
  json = reference_config("qwen3_5_vl");
  json["vision_config"] = "none";
  EXPECT_THAT(vision_error(json), HasSubstr("'vision_config' is \"none\", expected an object"));
}

}  // namespace
}  // namespace hexlm
