#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "sample_configs.hpp"

namespace hexlm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ConfigErrors, NameUnknownModelTypesAndTheNearest) {
  Json json = small_config("qwen3");
  json["model_type"] = "qwen3_5_moe";
  const auto config = parse_model_config(json, "folder/config.json");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::unsupported);
  EXPECT_THAT(config.error().message,
              AllOf(StartsWith("folder/config.json: model_type 'qwen3_5_moe' has no definition"),
                    HasSubstr("llama, qwen2"), HasSubstr("qwen3_5_text")));
  EXPECT_THAT(config.error().hint, HasSubstr("'qwen3_"));
  json["model_type"] = "lama";
  EXPECT_THAT(parse_model_config(json, "x").error().hint, HasSubstr("'llama'"));
}

TEST(ConfigErrors, WantAnObjectWithAModelType) {
  EXPECT_THAT(config_error(Json::array()),
              HasSubstr("bad_input: config.json: expected a JSON object, got array"));
  EXPECT_THAT(config_error(Json()), HasSubstr("expected a JSON object, got null"));
  EXPECT_THAT(config_error(Json::object()), HasSubstr("bad_input: config.json: 'model_type' is missing"));
  EXPECT_THAT(config_error({{"model_type", 5}}), HasSubstr("'model_type' is 5, expected a string"));
  EXPECT_THAT(config_error({{"model_type", "qwen3_5"}, {"text_config", 1}}),
              HasSubstr("'text_config' is 1, expected an object"));
  EXPECT_THAT(config_error({{"model_type", "qwen3_5"}}), HasSubstr("'hidden_size' is missing"));
}

TEST(ConfigErrors, NameNestedKeysInFull) {
  Json json = {{"model_type", "qwen3_5"}, {"text_config", small_config("qwen3_5_text")}};
  json["text_config"]["hidden_size"] = "64";
  EXPECT_EQ(
      config_error(json),
      "bad_input: config.json: 'text_config.hidden_size' is \"64\", expected an integer of 1 to 1048576");
  json["text_config"]["hidden_size"] = 64;
  json["text_config"]["rope_parameters"]["rope_theta"] = -1;
  EXPECT_THAT(config_error(json),
              HasSubstr("'text_config.rope_parameters.rope_theta' is -1, expected a number"));
  json["text_config"]["model_type"] = "qwen3_5_moe_text";
  EXPECT_THAT(config_error(json),
              HasSubstr("unsupported: config.json: 'text_config.model_type' is \"qwen3_5_moe_text\""));
}

struct Case {
  const char* name;
  const char* model_type;
  const char* change;  ///< merged into small_config(model_type)
  const char* error;
};

class ConfigErrorCases : public ::testing::TestWithParam<Case> {};

TEST_P(ConfigErrorCases, AreNamed) {
  Json json = small_config(GetParam().model_type);
  json.update(json_of(GetParam().change));
  EXPECT_THAT(config_error(json), HasSubstr(GetParam().error));
}

const Case cases[] = {
    // Wrong types and ranges
    {"NegativeSize", "llama", R"({"hidden_size": -64})", "bad_input: config.json: 'hidden_size' is -64"},
    {"ZeroLayers", "llama", R"({"num_hidden_layers": 0})",
     "'num_hidden_layers' is 0, expected an integer of 1 to 4096"},
    {"FractionalSize", "llama", R"({"hidden_size": 64.5})", "'hidden_size' is 64.5"},
    {"BooleanSize", "llama", R"({"vocab_size": true})", "'vocab_size' is true"},
    {"NullSize", "llama", R"({"vocab_size": null})",
     "'vocab_size' is missing, expected an integer of 1 to 16777216"},
    {"HugeHidden", "llama", R"({"hidden_size": 1048577})", "'hidden_size' is 1048577"},
    {"HugeLayers", "llama", R"({"num_hidden_layers": 4097})", "'num_hidden_layers' is 4097"},
    {"HugeVocabulary", "llama", R"({"vocab_size": 16777217})", "'vocab_size' is 16777217"},
    {"BeyondSigned", "llama", R"({"vocab_size": 18446744073709551615})",
     "'vocab_size' is 18446744073709551615"},
    {"HugeFloat", "llama", R"({"rope_theta": 1e300})", "'rope_theta' is 1e+300"},
    {"StringFlag", "llama", R"({"tie_word_embeddings": "true"})",
     "'tie_word_embeddings' is \"true\", expected true or false"},
    {"StringEpsilon", "llama", R"({"rms_norm_eps": "1e-6"})",
     "'rms_norm_eps' is \"1e-6\", expected a number"},
    {"ZeroEpsilon", "llama", R"({"rms_norm_eps": 0})", "'rms_norm_eps' is 0"},
    {"NumberDtype", "llama", R"({"dtype": 16})", "'dtype' is 16, expected a string"},
    {"ObjectSize", "llama", R"({"hidden_size": {"a": 1}})", "'hidden_size' is an object"},
    {"NegativeToken", "llama", R"({"eos_token_id": [1, -1]})",
     "'eos_token_id' is [1,-1], expected an integer of 0"},
    {"StringToken", "llama", R"({"bos_token_id": "1"})", "'bos_token_id' is \"1\""},
    // Sizes that disagree
    {"HeadsNotDivisible", "llama", R"({"num_key_value_heads": 3})",
     "bad_input: config.json: 'num_attention_heads' is 4, expected a multiple of num_key_value_heads, 3"},
    {"HiddenNotDivisible", "llama", R"({"head_dim": null, "hidden_size": 66})",
     "'hidden_size' is 66, expected a multiple of num_attention_heads, 4, when head_dim is missing"},
    {"OddHeadDim", "llama", R"({"head_dim": 33})", "'head_dim' is 33, expected an even number"},
    {"HugeHeadDim", "llama", R"({"head_dim": null, "hidden_size": 65536, "num_attention_heads": 2})",
     "'head_dim' is 32768, expected an even number of 2 to 4096"},
    {"LayerTypesLength", "qwen2", R"({"layer_types": ["full_attention"]})",
     "'layer_types' lists 1 layers, expected num_hidden_layers, 4"},
    {"LayerTypesNumbers", "qwen2", R"({"layer_types": [1, 2, 3, 4]})",
     "'layer_types' is [1,2,3,4], expected a list"},
    {"LayerTypesEmpty", "qwen2", R"({"layer_types": []})", "'layer_types' lists 0 layers"},
    {"IntervalZero", "qwen3_5_text", R"({"full_attention_interval": 0})", "'full_attention_interval' is 0"},
    {"DeltaHeadsNotDivisible", "qwen3_5_text", R"({"linear_num_key_heads": 3})",
     "'linear_num_value_heads' is 4, expected a multiple of linear_num_key_heads, 3"},
    {"DeltaHeadsMissing", "qwen3_5_text", R"({"linear_num_value_heads": null})",
     "'linear_num_value_heads' is missing"},
    {"OneTap", "qwen3_5_text", R"({"linear_conv_kernel_dim": 1})", "'linear_conv_kernel_dim' is 1"},
    {"ExpertsDisagree", "qwen3_moe", R"({"num_local_experts": 8})",
     "'num_local_experts' is 8, but num_experts is 4"},
    {"ExpertsMissing", "qwen3_moe", R"({"num_experts": null})", "'num_experts' is missing"},
    {"TopKAboveExperts", "qwen3_moe", R"({"num_experts_per_tok": 5})",
     "'num_experts_per_tok' is 5, expected an integer of 1 to 4"},
    {"SparseStepZero", "qwen3_moe", R"({"decoder_sparse_step": 0})", "'decoder_sparse_step' is 0"},
    {"EndlessExperts", "qwen3_moe", R"({"num_experts": 4096, "num_hidden_layers": 4096})",
     "'num_experts' is 4096, which over 4096 layers makes more than 131072 experts"},
    // What is not implemented
    {"Activation", "llama", R"({"hidden_act": "gelu"})",
     "unsupported: config.json: 'hidden_act' is \"gelu\", expected silu"},
    {"SlidingWindow", "qwen2", R"({"use_sliding_window": true, "sliding_window": 4096})",
     "unsupported: config.json: 'use_sliding_window' is true with a sliding_window of 4096"},
    {"SlidingLayers", "qwen2",
     R"({"layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"]})",
     "unsupported: config.json: 'layer_types' has 'sliding_attention' at layer 1, expected full_attention in "
     "qwen2"},
    {"LinearLayersElsewhere", "qwen3",
     R"({"layer_types": ["linear_attention", "full_attention", "full_attention", "full_attention"]})",
     "unsupported: config.json: 'layer_types' has 'linear_attention' at layer 0"},
    {"OutputGate", "qwen3_5_text", R"({"output_gate_type": "sigmoid"})",
     "unsupported: config.json: 'output_gate_type'"},
    {"NoAttentionGate", "qwen3_5_text", R"({"attn_output_gate": false})",
     "unsupported: config.json: 'attn_output_gate'"},
    {"Bidirectional", "qwen2", R"({"is_causal": false})", "unsupported: config.json: 'is_causal' is false"},
    {"Quantized", "qwen2", R"({"quantization_config": {"quant_method": "gptq"}})",
     "unsupported: config.json: 'quantization_config' says that the checkpoint is quantized"},
    {"Classifier", "qwen2", R"({"architectures": ["Qwen2ForSequenceClassification"]})",
     "unsupported: config.json: 'architectures' is [\"Qwen2ForSequenceClassification\"], expected a class "
     "ending in"},
    // Rope
    {"RopeType", "llama", R"({"rope_scaling": {"type": "dynamic", "factor": 2}})",
     "unsupported: config.json: 'rope_scaling.type' is \"dynamic\", expected default, linear, yarn or "
     "llama3"},
    {"LongRope", "llama", R"({"rope_parameters": {"rope_type": "longrope"}})",
     "unsupported: config.json: 'rope_parameters.rope_type' is \"longrope\""},
    {"MropeWithoutSections", "llama", R"({"rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]}})",
     "unsupported: config.json: 'rope_scaling.type' is \"mrope\""},
    {"RopePerLayerType", "qwen3", R"({"rope_parameters": {"full_attention": {"rope_theta": 10000}}})",
     "unsupported: config.json: 'rope_parameters.full_attention' sets rope per layer type"},
    {"RopeNotAnObject", "llama", R"({"rope_scaling": [1]})",
     "bad_input: config.json: 'rope_scaling' is [1], expected an object"},
    {"RopeTypeNumber", "llama", R"({"rope_scaling": {"type": 1}})",
     "'rope_scaling.type' is 1, expected a string"},
    {"LinearWithoutFactor", "llama", R"({"rope_scaling": {"type": "linear"}})",
     "factor' is missing, expected a number of 1"},
    {"SmallFactor", "llama", R"({"rope_scaling": {"type": "linear", "factor": 0.5}})",
     "'rope_scaling.factor' is 0.5"},
    {"Theta", "llama", R"({"rope_theta": 1})", "'rope_theta' is 1, expected a number of 2"},
    {"YarnBetas", "llama",
     R"({"rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 32}})",
     "'rope_scaling.beta_fast' is 1, expected at least beta_slow, 32"},
    {"YarnContext", "llama",
     R"({"rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": -5}})",
     "'rope_scaling.original_max_position_embeddings' is -5"},
    {"Llama3Factors", "llama",
     R"({"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 4, "high_freq_factor": 4,
                          "original_max_position_embeddings": 8192}})",
     "'rope_scaling.high_freq_factor' is 4, expected more than low_freq_factor, 4"},
    {"Llama3Missing", "llama", R"({"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 1}})",
     "original_max_position_embeddings' is missing"},
    {"Llama3Frequencies", "llama",
     R"({"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 1,
                          "original_max_position_embeddings": 8192}})",
     "high_freq_factor' is missing"},
    {"PartialOfWholeHeads", "llama", R"({"partial_rotary_factor": 0.5})",
     "unsupported: config.json: 'partial_rotary_factor' is 0.5, but llama rotates whole heads"},
    {"OddRotaryPart", "qwen3_5_text", R"({"head_dim": 20})",
     "rotates 5 of 20 dimensions, expected an even number"},
    {"NoRotaryPart", "qwen3_5_text", R"({"partial_rotary_factor": 0.01})", "rotates 0 of 32 dimensions"},
    {"SectionSum", "qwen3_5_text", R"({"rope_parameters": {"mrope_section": [2, 2, 2]}})",
     "bad_input: config.json: 'rope_parameters.mrope_section' is [2,2,2], expected three numbers whose sum "
     "is 4"},
    {"SectionCount", "qwen3_5_text", R"({"rope_parameters": {"mrope_section": [2, 2]}})",
     "expected three numbers"},
    {"SectionMissing", "qwen2_vl", "{}", "mrope_section' is nothing, expected three numbers whose sum is 16"},
};

INSTANTIATE_TEST_SUITE_P(ConfigErrors, ConfigErrorCases, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ConfigErrors, SurviveEveryKeyOfEveryWrongKind) {
  const Json wrong[] = {Json(),
                        Json(true),
                        Json(-1),
                        Json(0),
                        Json(1.5),
                        Json(INT64_MAX),
                        Json(UINT64_MAX),
                        Json(""),
                        Json("x"),
                        Json::array(),
                        Json::array({Json::object()}),
                        Json::object()};
  for (const char* type : {"llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_5_text"}) {
    const Json good = small_config(type);
    for (const auto& [key, value] : good.items()) {
      for (const Json& bad : wrong) {
        Json json = good;
        json[key] = bad;
        const auto config = parse_model_config(json, "config.json");
        if (!config) {
          EXPECT_FALSE(config.error().message.empty());
          continue;
        }
        EXPECT_TRUE(build_text_graph(*config)) << type << " " << key << " " << bad.dump();
      }
    }
  }
}

TEST(ConfigErrors, ShortenLongValues) {
  Json json = small_config("llama");
  json["dtype"] = Json::array({std::string(5000, 'x')});
  EXPECT_LT(config_error(json).size(), 200U);
  json = small_config("llama");
  json["model_type"] = std::string(5000, 'x');
  EXPECT_LT(config_error(json).size(), 400U);
}

TEST(ConfigErrors, RefuseAnIncompleteConfiguration) {
  ModelConfig config = parsed(small_config("llama"));
  config.text.layer_types.pop_back();
  auto graph = build_text_graph(config);
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("expected a layer type for each of 4 layers, got 3"));
  config = parsed(small_config("llama"));
  config.model_type = "llama9";
  EXPECT_EQ(build_text_graph(config).error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace hexlm
