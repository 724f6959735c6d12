#include <cmath>
#include <fmt/format.h>
#include <random>

#include "base/processors.hpp"
#include "models/model_config.hpp"
#include "support.hpp"

namespace hexlm {
namespace {

/// A model large enough for every loop to be shared between threads, also when it decodes.
struct WideModel {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<TestWeights> weights = std::make_shared<TestWeights>();

  WideModel(const std::string& json, const Codec& codec) {
    const auto parsed = parse_json(json, "test");
    EXPECT_TRUE(parsed);
    const auto config = parse_model_config(*parsed, "test");
    if (!config) {
      ADD_FAILURE() << config.error().message;
      return;
    }
    auto built = build_text_graph(*config);
    EXPECT_TRUE(built);
    graph = std::make_shared<const Graph>(std::move(*built));
    std::mt19937 engine(5);
    for (const Parameter& parameter : graph->parameters()) {
      int64_t count = 1;
      for (const int64_t size : parameter.shape) count *= size;
      std::vector<float> values(static_cast<size_t>(count));
      std::uniform_real_distribution<float> uniform(-0.1F, 0.1F);
      for (float& value : values) value = uniform(engine);
      const bool is_matrix = parameter.role == ParameterRole::linear;
      if (is_matrix) {
        weights->add(parameter.name, parameter.shape, values, codec);
      } else {
        weights->add(parameter.name, parameter.shape, std::move(values));
      }
    }
  }
};

constexpr const char* mixture = R"({"model_type": "qwen3_moe", "hidden_size": 512, "intermediate_size": 1024,
  "num_hidden_layers": 2, "num_attention_heads": 14, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 600,
  "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": true,
  "num_experts": 12, "num_experts_per_tok": 4, "moe_intermediate_size": 320, "norm_topk_prob": true,
  "decoder_sparse_step": 2, "mlp_only_layers": []})";

constexpr const char* hybrid =
    R"({"model_type": "qwen3_5_text", "hidden_size": 512, "intermediate_size": 1024,
  "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "num_attention_heads": 8,
  "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 600, "max_position_embeddings": 4096,
  "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 64,
  "linear_value_head_dim": 64, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.25,
                      "mrope_section": [3, 3, 2], "mrope_interleaved": true}})";

class Threads : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Threads, DoNotChangeABitOfPrefillAndDecoding) {
  const auto [json, codec] = GetParam();
  const WideModel model(json, *parse_codec(codec));
  ASSERT_NE(model.graph, nullptr);
  std::mt19937 engine(11);
  std::vector<int32_t> tokens(170);
  for (int32_t& token : tokens) token = static_cast<int32_t>(engine() % 600);
  for (const Precision precision : {Precision::high, Precision::normal}) {
    std::vector<float> prefill;
    std::vector<float> decoded;
    for (const int threads : {1, 2, 5}) {
      PlanOptions options;
      options.threads = threads;
      options.precision = precision;
      options.max_tokens = 128;
      options.max_rows = 128;
      options.context = 256;
      Runner runner(model.graph, model.weights, options);
      const std::vector<float> first = runner.logits(std::span(tokens).first(160), 128);
      const std::vector<float> second = runner.logits(std::span(tokens).subspan(160), 1);
      if (threads == 1) {
        prefill = first;
        decoded = second;
        for (const float value : decoded) ASSERT_TRUE(std::isfinite(value));
        continue;
      }
      EXPECT_EQ(first, prefill) << to_string(precision) << " threads " << threads;
      EXPECT_EQ(second, decoded) << to_string(precision) << " threads " << threads;
    }
  }
}

/// Where the calling thread may run while a step is computed.
class MaskObserver : public Observer {
 public:
  void after(const Node&, const Value&, std::span<const float>, const SymbolValues&) override {
    seen = allowed_processors();
  }
  std::vector<int> seen;
};

TEST(PinnedThreads, ComputeTheSameAndGiveTheCallerItsProcessorsBack) {
  const WideModel model(hybrid, *parse_codec("w4g64"));
  ASSERT_NE(model.graph, nullptr);
  const std::vector<int> before = allowed_processors();
  const std::vector<int32_t> tokens = {5, 9, 2, 77, 31, 599, 0, 8};
  PlanOptions options;
  options.context = 64;
  options.threads = 2;
  Runner free(model.graph, model.weights, options);
  options.processors = {before.back()};
  Runner pinned(model.graph, model.weights, options);
  MaskObserver mask;
  EXPECT_EQ(pinned.logits(tokens, 8, &mask), free.logits(tokens, 8));
  EXPECT_EQ(mask.seen, options.processors);
  EXPECT_EQ(allowed_processors(), before);
}

INSTANTIATE_TEST_SUITE_P(Models, Threads,
                         testing::Combine(testing::Values(mixture, hybrid),
                                          testing::Values("w4g64", "w8g32", "bf16")),
                         [](const auto& info) {
                           return fmt::format("{}_{}",
                                              std::get<0>(info.param) == mixture ? "mixture" : "hybrid",
                                              std::get<1>(info.param));
                         });

}  // namespace
}  // namespace hexlm
