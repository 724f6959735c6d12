#include "quantization/synthesize.hpp"

#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "checkpoint_edit.hpp"
#include "formats/checkpoint_weights.hpp"
#include "quantization/export.hpp"
#include "quantization/quantizer.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

constexpr std::array families = {
    "qwen2_tied", "qwen2_untied_sharded", "qwen3_moe", "llama3", "qwen3_5_text", "qwen3_vl", "qwen3_5_vl"};

SynthesizeOptions options_for(const std::string& name, const std::string& output) {
  SynthesizeOptions options;
  options.config = test_data("reference/" + name + "/checkpoint");
  options.output = output;
  return options;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments moments_of(const std::string& folder, const std::string& name) {
  const auto weights = CheckpointWeights::open(folder);
  EXPECT_TRUE(weights) << weights.error().message;
  const auto weight = (*weights)->find(name);
  EXPECT_TRUE(weight) << weight.error().message;
  const std::vector<float> values = decode_rows(*weight, 0, weight->rows());
  double sum = 0;
  double squares = 0;
  for (const float value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const float value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / static_cast<double>(values.size()))};
}

TEST(Synthesize, EveryFamilyGivesACompleteCheckpoint) {
  for (const char* name : families) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    const auto made = synthesize(options_for(name, folder.file("model")), nullptr);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(folder.entries(), 1U);
    ExportOptions export_options;
    export_options.checkpoint = folder.file("model");
    const auto plan = plan_export(export_options);
    ASSERT_TRUE(plan) << plan.error().message;
    uint64_t bytes = 0;
    for (const ExportTensor& tensor : plan->tensors) bytes += tensor.source_bytes;
    EXPECT_EQ(made->bytes, bytes);
    EXPECT_EQ(made->parameters, static_cast<int64_t>(bytes / 2));
    // The same tensors under the same names and shapes as the checkpoint that transformers wrote.
    std::map<std::string, std::vector<int64_t>> expected;
    std::map<std::string, std::vector<int64_t>> got;
    for (const auto& tensor : read_tensors(test_data(std::string("reference/") + name + "/checkpoint"))) {
      expected[tensor.name] = tensor.shape;
    }
    for (const auto& tensor : read_tensors(folder.file("model"))) got[tensor.name] = tensor.shape;
    EXPECT_EQ(got, expected);
  }
}

TEST(Synthesize, TowersAreComplete) {
  for (const char* name : {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5_vl"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    ASSERT_TRUE(synthesize(options_for(name, folder.file("model")), nullptr));
    const auto source = CheckpointWeights::open(test_data(std::string("reference/") + name + "/checkpoint"));
    const auto made = CheckpointWeights::open(folder.file("model"));
    ASSERT_TRUE(source && made);
    EXPECT_EQ((*made)->names(), (*source)->names());
    EXPECT_NEAR(moments_of(folder.file("model"), "visual.blocks.0.norm1.weight").mean, 1, 0.02);
    EXPECT_TRUE(std::filesystem::exists(folder.file("model/preprocessor_config.json")));
  }
}

TEST(Synthesize, TheSeedAloneDecidesTheBytes) {
  const TemporaryFolder folder;
  const auto bytes_of = [&](int threads, uint64_t seed, const std::string& name) {
    SynthesizeOptions options;
    options.config = test_data("models/tiny-vl");
    options.output = folder.file(name);
    options.threads = threads;
    options.seed = seed;
    EXPECT_TRUE(synthesize(options, nullptr));
    return read_test_file(options.output + "/model.safetensors");
  };
  const std::string one = bytes_of(1, 0, "a");
  EXPECT_GT(one.size(), 10U << 20);
  EXPECT_TRUE(bytes_of(3, 0, "b") == one);
  const std::string other = bytes_of(2, 1, "c");
  EXPECT_EQ(other.size(), one.size());
  EXPECT_FALSE(other == one);
}

TEST(Synthesize, WeightsFollowTheirDistributions) {
  const TemporaryFolder folder;
  ASSERT_TRUE(synthesize(options_for("qwen3_5_text", folder.file("next")), nullptr));
  ASSERT_TRUE(synthesize(options_for("qwen2_tied", folder.file("dense")), nullptr));
  const Moments linear = moments_of(folder.file("next"), "layers.0.mlp.up_proj.weight");
  EXPECT_NEAR(linear.mean, 0, 0.0005);
  EXPECT_NEAR(linear.deviation, 0.02, 0.0004);
  EXPECT_NEAR(moments_of(folder.file("next"), "norm.weight").mean, 0, 0.01);  // zero-centred: 1 + w
  EXPECT_NEAR(moments_of(folder.file("next"), "layers.0.linear_attn.norm.weight").mean, 1, 0.02);
  EXPECT_NEAR(moments_of(folder.file("dense"), "norm.weight").mean, 1, 0.01);
  const auto weights = CheckpointWeights::open(folder.file("next"));
  const auto decay = (*weights)->find("layers.0.linear_attn.A_log");
  for (const float value : decode_rows(*decay, 0, decay->rows())) {
    EXPECT_GE(value, 0);
    EXPECT_LE(value, std::log(16.0F));
  }
}

TEST(Synthesize, NothingRepeatsBetweenOrWithinTensors) {
  const TemporaryFolder folder;
  SynthesizeOptions options;
  options.config = test_data("models/tiny-vl");
  options.output = folder.file("model");
  ASSERT_TRUE(synthesize(options, nullptr));
  auto tensors = read_tensors(options.output);
  const std::string layer = "model.language_model.layers.0.mlp.";
  EXPECT_NE(find_tensor(tensors, layer + "up_proj.weight").bytes,
            find_tensor(tensors, layer + "gate_proj.weight").bytes);
  // Several blocks of one tensor.
  const auto& table = find_tensor(tensors, "model.language_model.embed_tokens.weight");
  std::set<std::string> rows;
  for (int64_t row = 0; row < table.shape[0]; ++row) {
    const auto* begin = reinterpret_cast<const char*>(table.bytes.data()) + row * table.shape[1] * 2;
    rows.emplace(begin, begin + table.shape[1] * 2);
  }
  EXPECT_EQ(static_cast<int64_t>(rows.size()), table.shape[0]);
}

TEST(Synthesize, DtypeIsWrittenToTensorsAndConfig) {
  for (const auto& [dtype, word] : {std::pair{DType::f32, "float32"}, std::pair{DType::f16, "float16"}}) {
    const TemporaryFolder folder;
    SynthesizeOptions options = options_for("qwen2_tied", folder.file("model"));
    options.config += "/config.json";
    options.dtype = dtype;
    const auto made = synthesize(options, nullptr);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->bytes, static_cast<uint64_t>(made->parameters) * (dtype == DType::f32 ? 4 : 2));
    for (const auto& tensor : read_tensors(options.output)) EXPECT_EQ(tensor.dtype, dtype);
    EXPECT_EQ((*read_json(options.output + "/config.json"))["dtype"], word);
    EXPECT_EQ((*read_json(options.output + "/generation_config.json"))["eos_token_id"], Json::parse("[2]"));
    EXPECT_NEAR(moments_of(options.output, "layers.0.mlp.up_proj.weight").deviation, 0.02, 0.0005);
  }
}

TEST(Synthesize, LargeModelsAreSharded) {
  const TemporaryFolder folder;
  SynthesizeOptions options = options_for("qwen2_tied", folder.file("model"));
  ASSERT_TRUE(synthesize(options, nullptr));
  const auto whole = read_tensors(options.output);
  options.output = folder.file("shards");
  options.shard_bytes = 300000;
  ASSERT_TRUE(synthesize(options, nullptr));
  size_t shards = 0;
  for (const auto& entry : std::filesystem::directory_iterator(options.output)) {
    if (entry.path().extension() != ".safetensors") continue;
    EXPECT_LT(entry.file_size(), 310000U);
    ++shards;
  }
  EXPECT_GT(shards, 3U);
  const auto divided = read_tensors(options.output);
  ASSERT_EQ(divided.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(divided[i].name, whole[i].name);
    EXPECT_EQ(divided[i].bytes, whole[i].bytes);
  }
}

TEST(Synthesize, FailuresLeaveNothing) {
  const TemporaryFolder folder;
  SynthesizeOptions options = options_for("qwen2_tied", folder.file("model"));
  int calls = 0;
  const auto stopped =
      synthesize(options, [&](const std::string&, uint64_t, uint64_t) { return ++calls < 5; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::interrupted);
  EXPECT_EQ(folder.entries(), 0U);
  options.dtype = DType::i8;
  EXPECT_EQ(synthesize(options, nullptr).error().code, ErrorCode::usage);
  options.dtype = DType::bf16;
  options.output = "/proc/hexlm-model";
  const auto full = synthesize(options, nullptr);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::limit);
  options.config = folder.file("absent.json");
  EXPECT_EQ(synthesize(options, nullptr).error().code, ErrorCode::bad_input);
}

TEST(Synthesize, BadInitializerRangeIsNamed) {
  const TemporaryFolder folder;
  auto config = read_json(test_data("reference/qwen2_tied/checkpoint/config.json"));
  ASSERT_TRUE(config);
  (*config)["initializer_range"] = -1;
  write_test_file(folder.file("config.json"), config->dump());
  SynthesizeOptions options;
  options.config = folder.file("config.json");
  options.output = folder.file("model");
  const auto made = synthesize(options, nullptr);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::bad_input);
  EXPECT_THAT(made.error().message, HasSubstr("initializer_range"));
}

}  // namespace
}  // namespace hexlm
