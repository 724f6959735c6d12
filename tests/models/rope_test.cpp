#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "sample_configs.hpp"

namespace hexlm {
namespace {

using ::testing::ElementsAre;
using Type = RopeConfig::Type;

// The expected numbers were computed in numpy float32 from the formula above each test (spec A.1 and C);
// P = theta ** (arange(0, R, 2) / R). Powers differ by an ulp or two between mathematics libraries.
constexpr float tolerance = 4e-7F;

void expect_frequencies(const op::Rope& rope, const std::vector<float>& expected) {
  ASSERT_EQ(rope.inverse_frequencies.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(rope.inverse_frequencies[i], expected[i], expected[i] * tolerance) << i;
  }
}

RopeConfig rope_config(Type type, double theta) {
  RopeConfig config;
  config.type = type;
  config.theta = theta;
  return config;
}

// 1 / P, theta 1e6, R 32
TEST(Rope, Standard) {
  const op::Rope rope = make_rope(rope_config(Type::standard, 1e6), 32);
  EXPECT_EQ(rope.rotary_dim, 32);
  EXPECT_EQ(rope.attention_factor, 1.0F);
  EXPECT_EQ(rope.stream, std::vector<uint8_t>(16, 0));
  expect_frequencies(
      rope, {1.0F, 0.421696514F, 0.177827939F, 0.0749894157F, 0.0316227786F, 0.0133352149F, 0.00562341325F,
             0.00237137382F, 0.00100000005F, 0.000421696546F, 0.00017782794F, 7.49894243e-05F,
             3.16227743e-05F, 1.3335216e-05F, 5.62341347e-06F, 2.37137374e-06F});
}

// 1 / P, theta 1e7, R = int(64 · 0.25) = 16
TEST(Rope, RotatesThePartAsked) {
  RopeConfig config = rope_config(Type::standard, 1e7);
  config.partial_rotary_factor = 0.25;
  const op::Rope rope = make_rope(config, 64);
  EXPECT_EQ(rope.rotary_dim, 16);
  expect_frequencies(rope, {1.0F, 0.133352146F, 0.0177827943F, 0.00237137382F, 0.000316227786F,
                            4.21696532e-05F, 5.62341347e-06F, 7.49894241e-07F});
}

// 1 / P / factor, theta 1e4, R 16, factor 4
TEST(Rope, Linear) {
  RopeConfig config = rope_config(Type::linear, 1e4);
  config.factor = 4;
  const op::Rope rope = make_rope(config, 16);
  EXPECT_EQ(rope.attention_factor, 1.0F);
  expect_frequencies(rope, {0.25F, 0.079056941F, 0.0250000004F, 0.00790569466F, 0.00249999994F,
                            0.000790569466F, 0.000250000012F, 7.90569466e-05F});
}

// find(b) = R ln(L0 / (2πb)) / (2 ln theta); low = floor(find(32)) = 5, high = ceil(find(1)) = 10;
// ramp = clip((j − low) / (high − low), 0, 1); 1/(factor P) · ramp + 1/P · (1 − ramp)
TEST(Rope, Yarn) {
  RopeConfig config = rope_config(Type::yarn, 1e6);
  config.factor = 4;
  config.original_max_position = 32768;
  const op::Rope rope = make_rope(config, 32);
  EXPECT_FLOAT_EQ(rope.attention_factor, 1.138629436111989F);  // 0.1 ln 4 + 1
  expect_frequencies(
      rope, {1.0F, 0.421696514F, 0.177827939F, 0.0749894157F, 0.0316227786F, 0.0133352149F, 0.00477990136F,
             0.00165996165F, 0.000549999997F, 0.000168678613F, 4.44569851e-05F, 1.87473561e-05F,
             7.90569356e-06F, 3.33380399e-06F, 1.40585337e-06F, 5.92843435e-07F});
}

// As above with low = 5.898986902084525, high = 9.912720177604275.
TEST(Rope, YarnWithoutRoundedBounds) {
  RopeConfig config = rope_config(Type::yarn, 1e6);
  config.factor = 4;
  config.original_max_position = 32768;
  config.truncate = false;
  expect_frequencies(make_rope(config, 32),
                     {1.0F, 0.421696514F, 0.177827939F, 0.0749894157F, 0.0316227786F, 0.0133352149F,
                      0.00551727042F, 0.00188350258F, 0.000607408001F, 0.000177344264F, 4.44569851e-05F,
                      1.87473561e-05F, 7.90569356e-06F, 3.33380399e-06F, 1.40585337e-06F, 5.92843435e-07F});
}

// L0 = 64: find(32) < 0, so that low is clamped to 0; high = 3.
TEST(Rope, YarnClampsItsBounds) {
  RopeConfig config = rope_config(Type::yarn, 1e6);
  config.factor = 4;
  config.original_max_position = 64;
  expect_frequencies(make_rope(config, 32),
                     {1.0F, 0.316272378F, 0.0889139697F, 0.0187473539F, 0.00790569466F, 0.00333380373F,
                      0.00140585331F, 0.000592843455F, 0.000250000012F, 0.000105424137F, 4.44569851e-05F,
                      1.87473561e-05F, 7.90569356e-06F, 3.33380399e-06F, 1.40585337e-06F, 5.92843435e-07F});
}

// theta 1e4, R 16, factor 8, L0 4096, betas 16 and 2: low 3, high 6.
TEST(Rope, YarnReadsItsBetas) {
  RopeConfig config = rope_config(Type::yarn, 1e4);
  config.factor = 8;
  config.original_max_position = 4096;
  config.beta_fast = 16;
  config.beta_slow = 2;
  const op::Rope rope = make_rope(config, 16);
  EXPECT_FLOAT_EQ(rope.attention_factor, 1.2079441541679836F);
  expect_frequencies(rope, {1.0F, 0.316227764F, 0.100000001F, 0.0316227786F, 0.00708333263F, 0.00131761574F,
                            0.000125000006F, 3.95284733e-05F});
}

TEST(Rope, YarnAttentionFactor) {
  RopeConfig config = rope_config(Type::yarn, 1e4);
  config.factor = 40;
  config.original_max_position = 4096;
  EXPECT_FLOAT_EQ(make_rope(config, 16).attention_factor, 0.1F * std::log(40.0F) + 1.0F);
  config.mscale = 1.0;
  // One of the pair alone is not enough.
  EXPECT_FLOAT_EQ(make_rope(config, 16).attention_factor, 0.1F * std::log(40.0F) + 1.0F);
  config.mscale_all_dim = 0.707;
  EXPECT_FLOAT_EQ(make_rope(config, 16).attention_factor, 1.0857263992561355F);
  config.attention_factor = 1.5;
  EXPECT_FLOAT_EQ(make_rope(config, 16).attention_factor, 1.5F);
  config = rope_config(Type::yarn, 1e4);
  config.original_max_position = 4096;
  EXPECT_FLOAT_EQ(make_rope(config, 16).attention_factor, 1.0F);
}

// λ = 2π P; λ < L0/high: 1/P; λ > L0/low: 1/(factor P); else t = (L0/λ − low)/(high − low),
// (1 − t)/(factor P) + t/P. theta 5e5, R 32, factor 8, low 1, high 4, L0 8192.
TEST(Rope, Llama3) {
  RopeConfig config = rope_config(Type::llama3, 5e5);
  config.factor = 8;
  config.low_freq_factor = 1;
  config.high_freq_factor = 4;
  config.original_max_position = 8192;
  const op::Rope rope = make_rope(config, 32);
  EXPECT_EQ(rope.attention_factor, 1.0F);
  expect_frequencies(
      rope, {1.0F, 0.440366626F, 0.193922758F, 0.0853971019F, 0.0376060307F, 0.0165604409F, 0.00729266508F,
             0.00321144611F, 0.000524846022F, 7.78465546e-05F, 3.42810235e-05F, 1.50962178e-05F,
             6.64787058e-06F, 2.92749974e-06F, 1.28917316e-06F, 5.6770881e-07F});
}

// The same with L0 128.
TEST(Rope, Llama3OfAShortContext) {
  RopeConfig config = rope_config(Type::llama3, 5e5);
  config.factor = 8;
  config.low_freq_factor = 1;
  config.high_freq_factor = 4;
  config.original_max_position = 128;
  expect_frequencies(make_rope(config, 32),
                     {1.0F, 0.440366626F, 0.191126496F, 0.0290985927F, 0.00470075384F, 0.00207005511F,
                      0.000911583134F, 0.000401430763F, 0.000176776681F, 7.78465546e-05F, 3.42810235e-05F,
                      1.50962178e-05F, 6.64787058e-06F, 2.92749974e-06F, 1.28917316e-06F, 5.6770881e-07F});
}

TEST(Rope, ChunksSectionsOfQwen2Vl) {
  RopeConfig config = rope_config(Type::standard, 1e6);
  config.mrope_section = {16, 24, 24};
  const op::Rope rope = make_rope(config, 128);
  ASSERT_EQ(rope.stream.size(), 64U);
  for (size_t j = 0; j < 64; ++j) EXPECT_EQ(rope.stream[j], j < 16 ? 0 : j < 40 ? 1 : 2) << j;
}

TEST(Rope, InterleavesSectionsOfQwen3Vl) {
  RopeConfig config = rope_config(Type::standard, 5e6);
  config.mrope_section = {24, 20, 20};
  config.mrope_interleaved = true;
  const op::Rope rope = make_rope(config, 128);
  ASSERT_EQ(rope.stream.size(), 64U);
  for (size_t j = 0; j < 64; ++j) EXPECT_EQ(rope.stream[j], j < 60 ? j % 3 : 0) << j;
}

TEST(Rope, InterleavesSectionsOfQwen35) {
  RopeConfig config = rope_config(Type::standard, 1e7);
  config.mrope_section = {11, 11, 10};
  config.mrope_interleaved = true;
  config.partial_rotary_factor = 0.25;
  const op::Rope rope = make_rope(config, 256);
  ASSERT_EQ(rope.stream.size(), 32U);
  // H at 1, 4, …, 31; W at 2, 5, …, 29; time elsewhere (spec A.1).
  for (size_t j = 0; j < 32; ++j) EXPECT_EQ(rope.stream[j], j % 3) << j;
  config.mrope_section = {2, 1, 1};
  EXPECT_THAT(make_rope(config, 32).stream, ElementsAre(0, 1, 2, 0));
}

TEST(Rope, CutsInterleavedSectionsAtTheRotatedPart) {
  RopeConfig config = rope_config(Type::standard, 1e7);
  config.mrope_section = {11, 11, 10};
  config.mrope_interleaved = true;
  EXPECT_THAT(make_rope(config, 8).stream, ElementsAre(0, 1, 2, 0));
}

TEST(Rope, OfTheReferenceYarnCheckpointReachesTheGraph) {
  const ModelConfig config = config_file("reference/qwen2_yarn/checkpoint/config.json");
  const Graph graph = built(config);
  for (const Node& node : graph.nodes()) {
    if (node.name != "layers.1.self_attn.rope_k") continue;
    const auto& rope = std::get<op::Rope>(node.op);
    EXPECT_FLOAT_EQ(rope.attention_factor, 1.138629436111989F);
    EXPECT_NEAR(rope.inverse_frequencies[1], 0.316272378F, 0.316272378F * tolerance);
    return;
  }
  FAIL() << "no rope node";
}

}  // namespace
}  // namespace hexlm
