#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint_edit.hpp"
#include "quantization/export.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string checkpoint(const std::string& name) { return test_data("reference/" + name + "/checkpoint"); }

ExportOptions options_for(const std::string& folder) {
  ExportOptions options;
  options.checkpoint = folder;
  return options;
}

const ExportTensor* find(const ExportPlan& plan, const std::string& name) {
  for (const ExportTensor& tensor : plan.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Codec codec(const char* text) { return *parse_codec(text); }

/// Bytes by the layout of docs/quantization.md, written out once more.
uint64_t expected_bytes(const ExportTensor& tensor) {
  uint64_t elements = 1;
  for (const int64_t dim : tensor.shape) elements *= static_cast<uint64_t>(dim);
  if (tensor.codec.is_float()) return elements * (tensor.codec.kind == Codec::Kind::f32 ? 4 : 2);
  const auto rows = static_cast<uint64_t>(tensor.shape[0]);
  const auto columns = static_cast<uint64_t>(tensor.shape[1]);
  const uint64_t group = tensor.codec.group > 0 ? static_cast<uint64_t>(tensor.codec.group) : columns;
  const uint64_t codes = (columns * static_cast<uint64_t>(tensor.codec.bits) + 7) / 8;
  const uint64_t groups = (columns + group - 1) / group;
  return rows * (codes + groups * (tensor.codec.symmetric ? 2 : 4));
}

TEST(PlanExport, DefaultsOfATiedModel) {
  const auto plan = plan_export(options_for(checkpoint("qwen2_tied")));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(find(*plan, "lm_head.weight"), nullptr);
  const ExportTensor* embedding = find(*plan, "embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->role, ParameterRole::embedding);
  EXPECT_EQ(to_string(embedding->codec), "w8g128");
  EXPECT_THAT(embedding->note, HasSubstr("tied"));
  EXPECT_EQ(to_string(find(*plan, "layers.0.mlp.down_proj.weight")->codec), "w4g64");
  EXPECT_EQ(to_string(find(*plan, "layers.0.self_attn.q_proj.bias")->codec), "f32");
  EXPECT_EQ(find(*plan, "norm.weight")->source_dtype, "BF16");
}

TEST(PlanExport, SizesAndBitsPerWeightAddUp) {
  for (const char* name : {"qwen2_tied", "qwen2_untied_sharded", "qwen3_moe", "qwen3_5_text"}) {
    for (const char* spec : {"w4g64", "w4g48", "w8", "w3g32a", "f16", "f32"}) {
      ExportOptions options = options_for(checkpoint(name));
      options.linear = codec(spec);
      options.embedding = codec("w8g128");
      const auto plan = plan_export(options);
      ASSERT_TRUE(plan) << plan.error().message;
      uint64_t bytes = 0;
      uint64_t linear_bytes = 0;
      int64_t elements = 0;
      int64_t linear_elements = 0;
      for (const ExportTensor& tensor : plan->tensors) {
        ASSERT_EQ(tensor.stored_bytes, expected_bytes(tensor)) << name << " " << spec << " " << tensor.name;
        int64_t count = 1;
        for (const int64_t dim : tensor.shape) count *= dim;
        EXPECT_EQ(tensor.source_bytes, static_cast<uint64_t>(count) * 2);
        bytes += tensor.stored_bytes;
        elements += count;
        linear_bytes += tensor.role == ParameterRole::linear ? tensor.stored_bytes : 0;
        linear_elements += tensor.role == ParameterRole::linear ? count : 0;
      }
      EXPECT_EQ(plan->bytes, bytes);
      EXPECT_DOUBLE_EQ(plan->bits_per_weight,
                       8.0 * static_cast<double>(bytes) / static_cast<double>(elements));
      EXPECT_DOUBLE_EQ(plan->linear_bits_per_weight,
                       8.0 * static_cast<double>(linear_bytes) / static_cast<double>(linear_elements));
      if (std::string_view(spec) == "w4g64") {
        EXPECT_DOUBLE_EQ(plan->linear_bits_per_weight, 4.25) << name;
      }
      EXPECT_GT(plan->peak_memory_bytes, uint64_t{1} << 20);
    }
  }
}

TEST(PlanExport, SensitiveMatricesKeepTheTypeTheyHave) {
  const auto delta_net = plan_export(options_for(checkpoint("qwen3_5_text")));
  ASSERT_TRUE(delta_net) << delta_net.error().message;
  const ExportTensor* gate = find(*delta_net, "layers.0.linear_attn.in_proj_a.weight");
  ASSERT_NE(gate, nullptr);
  EXPECT_EQ(gate->role, ParameterRole::sensitive);
  EXPECT_EQ(to_string(gate->codec), "bf16");
  EXPECT_THAT(gate->note, HasSubstr("amplified"));
  EXPECT_EQ(to_string(find(*delta_net, "layers.0.linear_attn.conv1d.weight")->codec), "f32");
  const auto experts = plan_export(options_for(checkpoint("qwen3_moe")));
  ASSERT_TRUE(experts) << experts.error().message;
  EXPECT_EQ(to_string(find(*experts, "layers.0.mlp.gate.weight")->codec), "bf16");
  EXPECT_EQ(to_string(find(*experts, "layers.0.mlp.experts.7.up_proj.weight")->codec), "w4g64");
}

TEST(PlanExport, NotesNameGroupsThatDoNotFit) {
  ExportOptions options = options_for(checkpoint("qwen3_5_text"));
  options.linear = codec("w4g128");
  const auto plan = plan_export(options);
  ASSERT_TRUE(plan);
  EXPECT_EQ(find(*plan, "layers.0.mlp.down_proj.weight")->note, "last group of 64: 320 columns, group 128");
  EXPECT_EQ(find(*plan, "layers.0.mlp.up_proj.weight")->note, "");
  options.linear = codec("w4g256");
  EXPECT_EQ(find(*plan_export(options), "layers.0.mlp.up_proj.weight")->note,
            "one group a row: 128 columns, group 256");
}

TEST(PlanExport, TiedModelsTakeOneCodecForBothEnds) {
  ExportOptions options = options_for(checkpoint("qwen2_tied"));
  options.lm_head = codec("w8g64");
  EXPECT_EQ(to_string(find(*plan_export(options), "embed_tokens.weight")->codec), "w8g64");
  options.embedding = codec("w8g64");
  EXPECT_TRUE(plan_export(options));
  options.embedding = codec("f16");
  const auto conflict = plan_export(options);
  ASSERT_FALSE(conflict);
  EXPECT_EQ(conflict.error().code, ErrorCode::usage);
  EXPECT_THAT(conflict.error().message, AllOf(HasSubstr("f16"), HasSubstr("w8g64")));
  options.lm_head.reset();
  EXPECT_EQ(to_string(find(*plan_export(options), "embed_tokens.weight")->codec), "f16");
}

TEST(PlanExport, UntiedModelsTakeTwo) {
  ExportOptions options = options_for(checkpoint("qwen2_untied_sharded"));
  options.lm_head = codec("w8g64");
  options.embedding = codec("bf16");
  const auto plan = plan_export(options);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(to_string(find(*plan, "embed_tokens.weight")->codec), "bf16");
  EXPECT_EQ(to_string(find(*plan, "lm_head.weight")->codec), "w8g64");
}

TEST(PlanExport, TheVisionTowerHasItsOwnFileAndCodec) {
  ExportOptions options = options_for(test_data("models/tiny-vl"));
  auto plan = plan_export(options);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_TRUE(plan->notes.empty());
  size_t vision = 0;
  for (const ExportTensor& tensor : plan->tensors) {
    const bool of_tower = tensor.name.starts_with("visual.");
    vision += of_tower ? 1 : 0;
    EXPECT_EQ(tensor.file, of_tower ? "vision.safetensors" : "weights.safetensors") << tensor.name;
    if (!of_tower || tensor.role != ParameterRole::vision) continue;
    EXPECT_EQ(to_string(tensor.codec), "w8g128") << tensor.name;
  }
  EXPECT_EQ(vision, 57U);
  // Read by every block, and the patch embedding is no matrix.
  EXPECT_EQ(to_string(find(*plan, "visual.patch_embed.proj.weight")->codec), "bf16");
  EXPECT_EQ(find(*plan, "visual.pos_embed.weight")->note, "kept BF16: every block builds on it");

  options.vision = codec("w4g96");
  plan = plan_export(options);
  ASSERT_TRUE(plan) << plan.error().message;
  const ExportTensor& odd = *find(*plan, "visual.blocks.0.attn.proj.weight");
  EXPECT_EQ(to_string(odd.codec), "w4g96");
  EXPECT_EQ(odd.note, "last group of 32: 128 columns, group 96");
  EXPECT_EQ(to_string(find(*plan, "layers.0.mlp.down_proj.weight")->codec), "w4g64");
}

/// Plans the export of an edited copy of a checkpoint and returns the error.
Error plan_edited(const std::string& name,
                  const std::function<void(std::vector<EditableTensor>&, Json&)>& edit) {
  const TemporaryFolder folder;
  copy_checkpoint(checkpoint(name), folder.file("checkpoint"), edit);
  const auto plan = plan_export(options_for(folder.file("checkpoint")));
  EXPECT_FALSE(plan);
  return plan ? Error{} : plan.error();
}

TEST(PlanExportErrors, MissingTensorIsNamed) {
  const Error error = plan_edited("qwen3", [](auto& tensors, Json&) {
    std::erase_if(tensors,
                  [](const auto& tensor) { return tensor.name == "model.layers.1.mlp.up_proj.weight"; });
  });
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, HasSubstr("layers.1.mlp.up_proj.weight"));
}

TEST(PlanExportErrors, WrongShapeIsNamedWithBothShapes) {
  const Error error = plan_edited("qwen3", [](auto& tensors, Json&) {
    EditableTensor& tensor = find_tensor(tensors, "model.layers.1.mlp.up_proj.weight");
    std::swap(tensor.shape[0], tensor.shape[1]);
  });
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("model.safetensors"), HasSubstr("model.layers.1.mlp.up_proj.weight"),
                    HasSubstr("[128, 320]"), HasSubstr("[320, 128]")));
}

TEST(PlanExportErrors, ConfigOfAnotherModelIsNamedWithBothShapes) {
  const Error error = plan_edited("qwen3", [](auto&, Json& config) { config["vocab_size"] = 511; });
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, AllOf(HasSubstr("[512, 128]"), HasSubstr("[511, 128]")));
}

TEST(PlanExportErrors, UnsupportedDtypeIsNamed) {
  const Error error = plan_edited("qwen3", [](auto& tensors, Json&) {
    EditableTensor& tensor = find_tensor(tensors, "model.layers.0.mlp.up_proj.weight");
    tensor.dtype = DType::f8_e4m3;
    tensor.bytes.resize(tensor.bytes.size() / 2);
  });
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.message, AllOf(HasSubstr("F8_E4M3"), HasSubstr("model.layers.0.mlp.up_proj.weight")));
}

TEST(PlanExportErrors, PackedWeightsOfAnotherQuantizerAreNamed) {
  const Error error = plan_edited("qwen3", [](auto& tensors, Json&) {
    EditableTensor& tensor = find_tensor(tensors, "model.layers.0.mlp.up_proj.weight");
    tensor = {
        "model.layers.0.mlp.up_proj.qweight", DType::i32, {16, 320}, std::vector<std::byte>(16 * 320 * 4)};
  });
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.message, HasSubstr("up_proj.qweight"));
  EXPECT_THAT(error.hint, HasSubstr("float"));
}

TEST(PlanExportErrors, TensorWithoutAPlaceIsNamed) {
  const Error error = plan_edited("qwen3", [](auto& tensors, Json&) {
    tensors.push_back({"model.layers.0.self_attn.sinks", DType::f32, {4}, std::vector<std::byte>(16)});
  });
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.message, AllOf(HasSubstr("self_attn.sinks"), HasSubstr("qwen3")));
}

TEST(PlanExportErrors, TokenizerLargerThanTheVocabularyIsNamedWithBothNumbers) {
  const TemporaryFolder folder;
  copy_checkpoint(checkpoint("qwen3"), folder.file("checkpoint"), [](auto&, Json&) {});
  std::filesystem::copy_file(test_data("models/tiny-vl/tokenizer.json"),
                             folder.file("checkpoint/tokenizer.json"));
  const auto plan = plan_export(options_for(folder.file("checkpoint")));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::bad_input);
  EXPECT_THAT(plan.error().message, AllOf(HasSubstr("tokenizer.json"), HasSubstr("512")));
}

TEST(PlanExportErrors, FullDiskIsNamedWithBothSizes) {
  ExportOptions options = options_for(checkpoint("qwen3"));
  options.package = "/proc/hexlm-package";  // a file system with no free blocks
  const auto plan = plan_export(options);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::limit);
  EXPECT_THAT(plan.error().message, AllOf(HasSubstr("0 B"), HasSubstr("MB")));
}

TEST(PlanExportErrors, UntiedConfigWithoutAHeadIsTied) {
  const TemporaryFolder folder;
  copy_checkpoint(checkpoint("qwen2_untied_sharded"), folder.file("checkpoint"), [](auto& tensors, Json&) {
    std::erase_if(tensors, [](const auto& tensor) { return tensor.name == "lm_head.weight"; });
  });
  const auto plan = plan_export(options_for(folder.file("checkpoint")));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_TRUE(plan->config.text.tied_embeddings);
  EXPECT_EQ(find(*plan, "lm_head.weight"), nullptr);
}

}  // namespace
}  // namespace hexlm
