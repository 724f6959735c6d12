#include "models/tensor_names.hpp"

#include <gtest/gtest.h>

#include "sample_configs.hpp"

namespace hexlm {
namespace {

TEST(TensorNames, OfTextCheckpoints) {
  const ModelConfig config = parsed(small_config("qwen3"));
  EXPECT_EQ(checkpoint_name(config, "embed_tokens.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(checkpoint_name(config, "layers.0.mlp.up_proj.weight"), "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(checkpoint_name(config, "norm.weight"), "model.norm.weight");
  EXPECT_EQ(checkpoint_name(config, "lm_head.weight"), "lm_head.weight");
}

TEST(TensorNames, OfMultimodalCheckpoints) {
  Json json = {{"model_type", "qwen3_5"}, {"text_config", small_config("qwen3_5_text")}};
  const ModelConfig config = parsed(json);
  EXPECT_EQ(checkpoint_name(config, "embed_tokens.weight"), "model.language_model.embed_tokens.weight");
  EXPECT_EQ(checkpoint_name(config, "layers.0.linear_attn.A_log"),
            "model.language_model.layers.0.linear_attn.A_log");
  EXPECT_EQ(checkpoint_name(config, "lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(checkpoint_name(config, "visual.patch_embed.proj.weight"),
            "model.visual.patch_embed.proj.weight");
}

TEST(TensorNames, OfTextOnlyExports) {
  Json json = {{"model_type", "qwen3_5"},
               {"architectures", {"Qwen3_5ForCausalLM"}},
               {"text_config", small_config("qwen3_5_text")}};
  EXPECT_EQ(checkpoint_name(parsed(json), "norm.weight"), "model.norm.weight");
  EXPECT_EQ(checkpoint_name(parsed(small_config("qwen3_5_text")), "norm.weight"), "model.norm.weight");
}

}  // namespace
}  // namespace hexlm
