#include <gtest/gtest.h>

#include "sample_configs.hpp"

namespace hexlm {
namespace {

constexpr const char* golden = R"(graph 3 inputs, 1 outputs, 1 states, 13 parameters, 24 nodes
input ids I32 [T]
input positions I32 [3, T]
input rows I32 [R]
state layers.0.self_attn.cache key_value_cache [2, 32]
node embed_tokens = embedding(ids) {embed_tokens.weight [128, 64] embedding} -> F32 [T, 64]
node layers.0.input_layernorm = rms_norm(embed_tokens) epsilon=1e-05 weight_offset=0 {layers.0.input_layernorm.weight [64] vector} -> F32 [T, 64]
node layers.0.self_attn.q_proj = linear(layers.0.input_layernorm) {layers.0.self_attn.q_proj.weight [128, 64] linear} -> F32 [T, 128]
node layers.0.self_attn.q_heads = reshape(layers.0.self_attn.q_proj) shape=[T, 4, 32] -> F32 [T, 4, 32]
node layers.0.self_attn.k_proj = linear(layers.0.input_layernorm) {layers.0.self_attn.k_proj.weight [64, 64] linear} -> F32 [T, 64]
node layers.0.self_attn.k_heads = reshape(layers.0.self_attn.k_proj) shape=[T, 2, 32] -> F32 [T, 2, 32]
node layers.0.self_attn.q_norm = rms_norm(layers.0.self_attn.q_heads) epsilon=1e-05 weight_offset=0 {layers.0.self_attn.q_norm.weight [32] vector} -> F32 [T, 4, 32]
node layers.0.self_attn.k_norm = rms_norm(layers.0.self_attn.k_heads) epsilon=1e-05 weight_offset=0 {layers.0.self_attn.k_norm.weight [32] vector} -> F32 [T, 2, 32]
node layers.0.self_attn.rope_q = rope(layers.0.self_attn.q_norm, positions) rotary_dim=32 frequencies=1..0.0001778 streams=T attention_factor=1 -> F32 [T, 4, 32]
node layers.0.self_attn.rope_k = rope(layers.0.self_attn.k_norm, positions) rotary_dim=32 frequencies=1..0.0001778 streams=T attention_factor=1 -> F32 [T, 2, 32]
node layers.0.self_attn.v_proj = linear(layers.0.input_layernorm) {layers.0.self_attn.v_proj.weight [64, 64] linear} -> F32 [T, 64]
node layers.0.self_attn.v_heads = reshape(layers.0.self_attn.v_proj) shape=[T, 2, 32] -> F32 [T, 2, 32]
node layers.0.self_attn.attention = attention(layers.0.self_attn.rope_q, layers.0.self_attn.rope_k, layers.0.self_attn.v_heads) query_heads=4 key_value_heads=2 head_dim=32 scale=0.17677669 <layers.0.self_attn.cache> -> F32 [T, 128]
node layers.0.self_attn.o_proj = linear(layers.0.self_attn.attention) {layers.0.self_attn.o_proj.weight [64, 128] linear} -> F32 [T, 64]
node layers.0.mixer_residual = add(embed_tokens, layers.0.self_attn.o_proj) -> F32 [T, 64]
node layers.0.post_attention_layernorm = rms_norm(layers.0.mixer_residual) epsilon=1e-05 weight_offset=0 {layers.0.post_attention_layernorm.weight [64] vector} -> F32 [T, 64]
node layers.0.mlp.gate_proj = linear(layers.0.post_attention_layernorm) {layers.0.mlp.gate_proj.weight [96, 64] linear} -> F32 [T, 96]
node layers.0.mlp.up_proj = linear(layers.0.post_attention_layernorm) {layers.0.mlp.up_proj.weight [96, 64] linear} -> F32 [T, 96]
node layers.0.mlp.silu_multiply = silu_multiply(layers.0.mlp.gate_proj, layers.0.mlp.up_proj) -> F32 [T, 96]
node layers.0.mlp.down_proj = linear(layers.0.mlp.silu_multiply) {layers.0.mlp.down_proj.weight [64, 96] linear} -> F32 [T, 64]
node layers.0.mlp_residual = add(layers.0.mixer_residual, layers.0.mlp.down_proj) -> F32 [T, 64]
node norm = rms_norm(layers.0.mlp_residual) epsilon=1e-05 weight_offset=0 {norm.weight [64] vector} -> F32 [T, 64]
node gather_rows = gather_rows(norm, rows) -> F32 [R, 64]
node lm_head = linear(gather_rows) {embed_tokens.weight [128, 64] embedding} -> F32 [R, 128]
hidden embed_tokens F32 [T, 64]
hidden norm F32 [T, 64]
output lm_head F32 [R, 128]
)";

TEST(DecoderDump, OfOneQwen3Layer) {
  Json json = small_config("qwen3");
  json["num_hidden_layers"] = 1;
  json["tie_word_embeddings"] = true;
  EXPECT_EQ(dump(built(parsed(json))), golden);
}

TEST(DecoderDump, IsTheSameEveryTime) {
  const ModelConfig config = config_file("reference/qwen3_5_text/checkpoint/config.json");
  EXPECT_EQ(dump(built(config)), dump(built(config)));
}

}  // namespace
}  // namespace hexlm
