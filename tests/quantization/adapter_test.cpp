#include "formats/adapter.hpp"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/half.hpp"
#include "checkpoint_edit.hpp"
#include "formats/checkpoint_weights.hpp"
#include "quantization/adapted_weights.hpp"
#include "quantization/merge.hpp"
#include "quantization/quantizer.hpp"
#include "quantization/source_model.hpp"
#include "support/test_adapter.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string base_checkpoint() { return test_data("reference/qwen2_tied/checkpoint"); }

std::vector<float> weight_of(const SourceWeights& weights, const std::string& name) {
  const auto view = weights.find(name);
  EXPECT_TRUE(view) << view.error().message;
  return view ? decode_rows(*view, 0, view->rows()) : std::vector<float>();
}

std::vector<float> base_weight(const std::string& name) {
  return weight_of(**CheckpointWeights::open(base_checkpoint()), name);
}

Result<SourceModel> merged_with(const std::vector<AdapterChoice>& adapters) {
  return open_source_model(base_checkpoint(), adapters);
}

Error refusal(const std::string& folder, double weight = 1) {
  const auto model = merged_with({{folder, weight}});
  EXPECT_FALSE(model) << "was not refused";
  return model ? Error{} : model.error();
}

class AdapterTest : public testing::Test {
 protected:
  TestAdapter adapter(const std::string& name = "adapter") { return TestAdapter(folder_.file(name)); }
  TemporaryFolder folder_;
};

const std::string up_proj = "model.layers.1.mlp.up_proj";  // [320, 128]

/// W + Σ_i scale_i · B_i A_i of up_proj, straight from the formula.
void expect_sum(const std::vector<float>& got, std::vector<std::pair<TestAdapter*, double>> terms) {
  const std::vector<float> base = base_weight("layers.1.mlp.up_proj.weight");
  ASSERT_EQ(got.size(), base.size());
  for (size_t row = 0; row < 320; ++row) {
    for (size_t column = 0; column < 128; ++column) {
      double sum = base[row * 128 + column];
      for (auto& [adapter, scale] : terms) {
        const auto& down = adapter->values("base_model.model." + up_proj + ".lora_A.weight");
        const auto& up = adapter->values("base_model.model." + up_proj + ".lora_B.weight");
        for (size_t k = 0; k < 2; ++k) sum += scale * up[row * 2 + k] * down[k * 128 + column];
      }
      ASSERT_EQ(got[row * 128 + column], static_cast<float>(sum)) << row << ", " << column;
    }
  }
}

TEST_F(AdapterTest, SeveralAdaptersAddUpWithTheirWeights) {
  TestAdapter first = adapter("first");
  first.add_pair(up_proj, 320, 128);
  TestAdapter second(folder_.file("second"), 8);
  second.config["use_rslora"] = true;
  second.add_pair("model.layers.1.mlp.up_proj", 320, 128);
  const auto model = merged_with({{first.write(), 0.5}, {second.write(), -2}});
  ASSERT_TRUE(model) << model.error().message;
  expect_sum(weight_of(*model->weights, "layers.1.mlp.up_proj.weight"),
             {{&first, 0.5 * 6 / 2}, {&second, -2 * 6 / std::sqrt(2.0)}});
  EXPECT_EQ(weight_of(*model->weights, "layers.0.mlp.up_proj.weight"),
            base_weight("layers.0.mlp.up_proj.weight"));
}

TEST_F(AdapterTest, NamesOfOtherClassesAndTheDefaultAdapterNameAreRead) {
  TestAdapter made = adapter();
  made.add("base_model.model.model.language_model.layers.1.mlp.up_proj.lora_A.default.weight", {2, 128});
  made.add("base_model.model.model.language_model.layers.1.mlp.up_proj.lora_B.default.weight", {320, 2});
  const auto model = merged_with({{made.write(), 1}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_NE(weight_of(*model->weights, "layers.1.mlp.up_proj.weight"),
            base_weight("layers.1.mlp.up_proj.weight"));
}

TEST_F(AdapterTest, TransposedDeltaOfFanInFanOut) {
  // up_proj's weight [320, 128] as if it were stored [inputs, outputs].
  TestAdapter made = adapter();
  made.config["fan_in_fan_out"] = true;
  made.add_pair(up_proj, 128, 320);
  const auto model = merged_with({{made.write(), 1}});
  ASSERT_TRUE(model) << model.error().message;
  const std::vector<float> base = base_weight("layers.1.mlp.up_proj.weight");
  const std::vector<float> got = weight_of(*model->weights, "layers.1.mlp.up_proj.weight");
  const auto& down = made.values("base_model.model." + up_proj + ".lora_A.weight");
  const auto& up = made.values("base_model.model." + up_proj + ".lora_B.weight");
  for (size_t in = 0; in < 320; ++in) {
    for (size_t out = 0; out < 128; ++out) {
      double sum = base[in * 128 + out];
      for (size_t k = 0; k < 2; ++k) sum += 3.0 * up[out * 2 + k] * down[k * 320 + in];
      ASSERT_EQ(got[in * 128 + out], static_cast<float>(sum));
    }
  }
}

TEST_F(AdapterTest, DoraRowsHaveTheirMagnitude) {
  TestAdapter made = adapter();
  made.config["use_dora"] = true;
  made.add_pair(up_proj, 320, 128);
  auto& magnitudes = made.add("base_model.model." + up_proj + ".lora_magnitude_vector.weight", {320, 1});
  for (size_t i = 0; i < magnitudes.size(); ++i) magnitudes[i] = 0.5F + static_cast<float>(i);
  const auto model = merged_with({{made.write(), 1}});
  ASSERT_TRUE(model) << model.error().message;
  const std::vector<float> got = weight_of(*model->weights, "layers.1.mlp.up_proj.weight");
  for (size_t row = 0; row < 320; ++row) {
    double squares = 0;
    for (size_t column = 0; column < 128; ++column) squares += std::pow(got[row * 128 + column], 2);
    EXPECT_NEAR(std::sqrt(squares), magnitudes[row], 1e-5 * magnitudes[row]);
  }
  EXPECT_EQ(refusal(made.write(), 0.5).code, ErrorCode::unsupported);
}

TEST_F(AdapterTest, AdaptedEmbeddingComesApartFromTheTiedHead) {
  TestAdapter made = adapter();
  made.add("base_model.model.model.embed_tokens.lora_embedding_A", {2, 512});
  made.add("base_model.model.model.embed_tokens.lora_embedding_B", {128, 2});
  const auto model = merged_with({{made.write(), 1}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_FALSE(model->config.text.tied_embeddings);
  const std::vector<float> base = base_weight("embed_tokens.weight");
  EXPECT_EQ(weight_of(*model->weights, "lm_head.weight"), base);
  const std::vector<float> got = weight_of(*model->weights, "embed_tokens.weight");
  const auto& down = made.values("base_model.model.model.embed_tokens.lora_embedding_A");
  const auto& up = made.values("base_model.model.model.embed_tokens.lora_embedding_B");
  for (const size_t token : {size_t{0}, size_t{77}, size_t{511}}) {
    for (size_t i = 0; i < 128; ++i) {
      const double sum =
          base[token * 128 + i] + 3.0 * up[i * 2] * down[token] + 3.0 * up[i * 2 + 1] * down[512 + token];
      EXPECT_EQ(got[token * 128 + i], static_cast<float>(sum));
    }
  }
}

TEST_F(AdapterTest, SavedModulesReplaceAndMayResizeTheVocabulary) {
  TestAdapter made = adapter();
  made.config["modules_to_save"] = {"embed_tokens", "lm_head"};
  const auto& embedding = made.add("base_model.model.model.embed_tokens.weight", {520, 128});
  const auto& head = made.add("base_model.model.lm_head.weight", {520, 128});
  const auto model = merged_with({{made.write(), 1}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->config.text.vocabulary_size, 520);
  EXPECT_EQ(weight_of(*model->weights, "embed_tokens.weight"), embedding);
  EXPECT_EQ(weight_of(*model->weights, "lm_head.weight"), head);

  const std::string output = folder_.file("merged");
  MergeOptions options;
  options.checkpoint = base_checkpoint();
  options.adapters = {{made.write(), 1}};
  options.output = output;
  const auto merged = merge_checkpoint(options, nullptr);
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_EQ(merged->tensors_changed, 2);
  const auto again = open_source_model(output, {});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->config.text.vocabulary_size, 520);
  EXPECT_FALSE(again->config.text.tied_embeddings);
  EXPECT_EQ(weight_of(*again->weights, "lm_head.weight"), head);
}

TEST_F(AdapterTest, TrainedBiasesReplaceAndLoraBiasesAdd) {
  TestAdapter made = adapter();
  made.config["bias"] = "lora_only";
  made.config["lora_bias"] = true;
  made.add_pair("model.layers.0.self_attn.k_proj", 64, 128);
  const auto& replaced = made.add("base_model.model.model.layers.0.self_attn.v_proj.bias", {64});
  const auto& added = made.add("base_model.model.model.layers.0.self_attn.k_proj.lora_B.bias", {64});
  const auto model = merged_with({{made.write(), 1}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(weight_of(*model->weights, "layers.0.self_attn.v_proj.bias"), replaced);
  const std::vector<float> base = base_weight("layers.0.self_attn.k_proj.bias");
  const std::vector<float> got = weight_of(*model->weights, "layers.0.self_attn.k_proj.bias");
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(got[i], static_cast<float>(base[i] + 3.0 * added[i]));
}

TEST_F(AdapterTest, WhatCannotBeMergedIsRefusedByName) {
  struct Case {
    const char* key;
    Json value;
    ErrorCode code;
    const char* named;
  };
  for (const Case& each :
       {Case{"init_lora_weights", "pissa", ErrorCode::unsupported, "pissa"},
        Case{"init_lora_weights", "pissa_niter_16", ErrorCode::unsupported, "base"},
        Case{"init_lora_weights", "loftq", ErrorCode::unsupported, "loftq"},
        Case{"init_lora_weights", "olora", ErrorCode::unsupported, "olora"},
        Case{"peft_type", "LOHA", ErrorCode::unsupported, "LOHA"},
        Case{"peft_type", nullptr, ErrorCode::bad_input, "peft_type"},
        Case{"layer_replication", Json{{0, 2}}, ErrorCode::unsupported, "layer_replication"},
        Case{"target_parameters", Json{"x"}, ErrorCode::unsupported, "target_parameters"},
        Case{"some_new_option", 3, ErrorCode::unsupported, "some_new_option"},
        Case{"r", 0, ErrorCode::bad_input, "r:"}, Case{"r", 4, ErrorCode::bad_input, "[4, 128]"},
        Case{"lora_alpha", "x", ErrorCode::bad_input, "lora_alpha"},
        Case{"use_dora", true, ErrorCode::bad_input, "magnitude"},
        Case{"alpha_pattern", Json{{"a(", 1}}, ErrorCode::bad_input, "a("},
        Case{"bias", "some", ErrorCode::bad_input, "bias"}}) {
    TestAdapter made = adapter();
    made.add_pair(up_proj, 320, 128);
    made.config[each.key] = each.value;
    const Error error = refusal(made.write());
    EXPECT_EQ(error.code, each.code) << each.key << ": " << error.message;
    EXPECT_THAT(error.message, HasSubstr(each.named));
    EXPECT_EQ(error.message.find('\n'), std::string::npos);
  }
}

TEST_F(AdapterTest, AnotherBaseIsRefusedWithBothShapes) {
  TestAdapter made = adapter();
  made.add_pair(up_proj, 384, 128);
  Error error = refusal(made.write());
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, AllOf(HasSubstr("[384, 128]"), HasSubstr("[320, 128]"), HasSubstr("up_proj")));
  EXPECT_THAT(error.hint, HasSubstr("some/base"));
  TestAdapter deeper = adapter("deeper");
  deeper.add_pair("model.layers.30.mlp.up_proj", 320, 128);
  error = refusal(deeper.write());
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, HasSubstr("layers.30.mlp.up_proj"));
}

TEST_F(AdapterTest, TensorsOfUnknownKindsAreRefused) {
  for (const char* name : {"base_model.model.model.layers.0.mlp.up_proj.lokr_w1", "layers.0.lora_A.weight",
                           "base_model.model.model.norm.weight"}) {
    TestAdapter made = adapter();
    made.add_pair(up_proj, 320, 128);
    made.add(name, {128});
    const Error error = refusal(made.write());
    EXPECT_EQ(error.code, ErrorCode::unsupported) << name;
    EXPECT_THAT(error.message, HasSubstr(name));
  }
}

TEST_F(AdapterTest, HalfAnUpdateIsRefused) {
  TestAdapter made = adapter();
  made.add("base_model.model." + up_proj + ".lora_A.weight", {2, 128});
  EXPECT_EQ(refusal(made.write()).code, ErrorCode::bad_input);
}

TEST_F(AdapterTest, PickledAdaptersAreNotLoaded) {
  std::filesystem::create_directories(folder_.file("old"));
  write_test_file(folder_.file("old/adapter_config.json"), R"({"peft_type": "LORA"})");
  write_test_file(folder_.file("old/adapter_model.bin"), "x");
  const Error error = refusal(folder_.file("old"));
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.hint, HasSubstr("pickled"));
}

TEST_F(AdapterTest, NotFiniteResultsLeaveNothingBehind) {
  TestAdapter made = adapter();
  made.add_pair(up_proj, 320, 128);
  made.values("base_model.model." + up_proj + ".lora_A.weight")[5] = std::nanf("");
  MergeOptions options;
  options.checkpoint = base_checkpoint();
  options.adapters = {{made.write(), 1}};
  options.output = folder_.file("merged");
  const auto merged = merge_checkpoint(options, nullptr);
  ASSERT_FALSE(merged);
  EXPECT_EQ(merged.error().code, ErrorCode::bad_input);
  EXPECT_THAT(merged.error().message, AllOf(HasSubstr("up_proj.weight"), HasSubstr("[0, 5] is nan")));
  EXPECT_FALSE(std::filesystem::exists(options.output));
}

TEST_F(AdapterTest, MergingKeepsShardsAndUntouchedBytes) {
  const std::string base = test_data("reference/qwen2_untied_sharded/checkpoint");
  TestAdapter made = adapter();
  made.add_pair("model.layers.1.mlp.gate_proj", 320, 128);
  MergeOptions options;
  options.checkpoint = base;
  options.adapters = {{made.write(), 1}};
  options.output = folder_.file("merged");
  options.dtype = DType::bf16;
  const auto merged = merge_checkpoint(options, nullptr);
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_EQ(merged->tensors_changed, 1);
  const auto before = Checkpoint::open(base);
  const auto after = Checkpoint::open(options.output);
  ASSERT_TRUE(before && after);
  ASSERT_EQ(after->tensors().size(), before->tensors().size());
  for (const TensorView* tensor : before->tensors()) {
    const TensorView* other = after->find(tensor->name);
    ASSERT_NE(other, nullptr) << tensor->name;
    EXPECT_EQ(other->dtype, tensor->dtype);
    const bool equal = std::ranges::equal(other->bytes, tensor->bytes);
    EXPECT_EQ(equal, tensor->name != "model.layers.1.mlp.gate_proj.weight") << tensor->name;
    EXPECT_EQ(std::filesystem::path(after->file_of(tensor->name)->path()).filename(),
              std::filesystem::path(before->file_of(tensor->name)->path()).filename());
  }
  // It may be replaced by another merge, and only by asking for it.
  EXPECT_EQ(merge_checkpoint(options, nullptr).error().code, ErrorCode::usage);
  options.replace = true;
  EXPECT_TRUE(merge_checkpoint(options, nullptr));
}

}  // namespace
}  // namespace hexlm
