#include "quantization/export.hpp"

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/half.hpp"
#include "checkpoint_edit.hpp"
#include "formats/checkpoint_weights.hpp"
#include "formats/package.hpp"
#include "quantization/quantizer.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string checkpoint(const std::string& name) { return test_data("reference/" + name + "/checkpoint"); }

ExportOptions options_for(const std::string& from, const std::string& to, const char* linear = "w4g64") {
  ExportOptions options;
  options.checkpoint = from;
  options.package = to;
  options.linear = *parse_codec(linear);
  options.argv = {"hexlm", "export"};
  options.tool_version = "1.2.3";
  return options;
}

Result<ExportResult> run(const ExportOptions& options, const ProgressCallback& progress = nullptr) {
  HEXLM_ASSIGN(const ExportPlan plan, plan_export(options));
  return export_package(options, plan, progress);
}

/// Every weight of the package against its source: within half a step per group, and the recorded error
/// right.
void expect_faithful(const std::string& source, const Package& package) {
  const auto weights = CheckpointWeights::open(source);
  ASSERT_TRUE(weights) << weights.error().message;
  for (const PackageTensor& tensor : package.manifest().tensors) {
    SCOPED_TRACE(tensor.name + " " + to_string(tensor.codec));
    const auto original = (*weights)->find(tensor.name);
    const auto stored = package.find(tensor.name);
    ASSERT_TRUE(original && stored);
    ASSERT_EQ(stored->shape, original->shape);
    const std::vector<float> expected = decode_rows(*original, 0, original->rows());
    const std::vector<float> got = decode_rows(*stored, 0, stored->rows());
    double error = 0;
    double norm = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      error += (expected[i] - got[i]) * (expected[i] - got[i]);
      norm += expected[i] * expected[i];
    }
    const double relative = norm > 0 ? std::sqrt(error / norm) : 0;
    EXPECT_NEAR(tensor.relative_error, relative, 1e-4 * relative + 1e-9);
    const double bound = tensor.codec.is_float() ? 0 : tensor.codec.bits == 8 ? 0.02 : 0.2;
    EXPECT_LE(relative, bound);
    EXPECT_EQ(relative > 0, !tensor.codec.is_float());
  }
}

TEST(Export, EveryReferenceCheckpointReopensAndMatchesItsSource) {
  for (const char* name :
       {"qwen2_tied", "qwen2_untied_sharded", "qwen2_yarn", "qwen3", "qwen3_moe", "llama3", "qwen3_5_text"}) {
    SCOPED_TRACE(name);
    for (const char* spec : {"w4g64", "w4g48a", "w8"}) {
      const TemporaryFolder folder;
      const ExportOptions options = options_for(checkpoint(name), folder.file("package"), spec);
      const auto result = run(options);
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_EQ(folder.entries(), 1U) << "temporary names are left";
      const auto package = Package::open(options.package, true, 2);
      ASSERT_TRUE(package) << package.error().message;
      expect_faithful(options.checkpoint, **package);
      const auto plan = plan_export(options);
      ASSERT_TRUE(plan);
      ASSERT_EQ((*package)->manifest().tensors.size(), plan->tensors.size());
      uint64_t stored = 0;
      for (const PackageTensor& tensor : (*package)->manifest().tensors) stored += tensor.stored_bytes;
      EXPECT_EQ(result->bytes, stored);
      EXPECT_EQ(result->bits_per_weight, plan->bits_per_weight);
    }
  }
}

TEST(Export, FloatCodecsKeepEveryBitOfBf16) {
  for (const char* spec : {"f32", "bf16"}) {
    const TemporaryFolder folder;
    ExportOptions options = options_for(checkpoint("qwen3"), folder.file("package"), spec);
    options.embedding = options.lm_head = options.linear;
    const auto result = run(options);
    ASSERT_TRUE(result) << result.error().message;
    const auto package = Package::open(options.package, true, 1);
    ASSERT_TRUE(package) << package.error().message;
    expect_faithful(options.checkpoint, **package);
    for (const PackageTensor& tensor : (*package)->manifest().tensors) EXPECT_EQ(tensor.relative_error, 0);
  }
}

TEST(Export, TiedTensorIsStoredOnce) {
  const TemporaryFolder folder;
  const ExportOptions options = options_for(checkpoint("qwen2_tied"), folder.file("package"));
  ASSERT_TRUE(run(options));
  const auto package = Package::open(options.package, true, 1);
  ASSERT_TRUE(package) << package.error().message;
  EXPECT_TRUE((*package)->contains("embed_tokens.weight"));
  EXPECT_FALSE((*package)->contains("lm_head.weight"));
}

TEST(Export, FilesDoNotDependOnTheNumberOfThreads) {
  const TemporaryFolder folder;
  std::vector<std::string> weights;
  std::vector<std::string> manifests;
  for (const int threads : {1, 2, 3}) {
    ExportOptions options = options_for(test_data("models/tiny-vl"), folder.file(std::to_string(threads)));
    options.threads = threads;
    const auto result = run(options);
    ASSERT_TRUE(result) << result.error().message;
    weights.push_back(read_test_file(options.package + "/weights.safetensors"));
    manifests.push_back(read_test_file(options.package + "/manifest.json"));
  }
  EXPECT_GT(weights[0].size(), 5U << 20);
  for (size_t i = 1; i < weights.size(); ++i) {
    EXPECT_TRUE(weights[i] == weights[0]);
    EXPECT_EQ(manifests[i], manifests[0]);
  }
}

TEST(Export, ManifestSaysHowAndFromWhatItWasMade) {
  const TemporaryFolder folder;
  ExportOptions options = options_for(checkpoint("qwen2_untied_sharded"), folder.file("package"));
  options.lm_head = *parse_codec("w8g64");
  ASSERT_TRUE(run(options));
  const auto package = Package::open(options.package, false, 1);
  ASSERT_TRUE(package) << package.error().message;
  const Manifest& manifest = (*package)->manifest();
  EXPECT_EQ(manifest.architecture, "qwen2");
  EXPECT_EQ(manifest.configuration, *read_json(options.checkpoint + "/config.json"));
  EXPECT_EQ(manifest.provenance["tool"], "hexlm 1.2.3");
  EXPECT_EQ(manifest.provenance["argv"], options.argv);
  EXPECT_EQ(manifest.provenance["method"], "rtn");
  EXPECT_EQ(manifest.provenance["codecs"]["linear"], "w4g64");
  EXPECT_EQ(manifest.provenance["codecs"]["lm_head"], "w8g64");
  EXPECT_EQ(manifest.provenance["codecs"]["embedding"], "w8g128");
  std::map<std::string, uint64_t> sizes;
  for (const Json& file : manifest.provenance["source"]) sizes[file["file"]] = file["bytes"];
  EXPECT_EQ(sizes.size(), 5U);
  for (const auto& [name, size] : sizes)
    EXPECT_EQ(size, std::filesystem::file_size(options.checkpoint + "/" + name));
}

TEST(Export, SourceHashesFollowTheContent) {
  const TemporaryFolder folder;
  const auto hash_of = [&](const std::string& from, const std::string& to) {
    EXPECT_TRUE(run(options_for(from, folder.file(to))));
    const auto manifest = read_json(folder.file(to) + "/manifest.json");
    for (const Json& file : (*manifest)["provenance"]["source"]) {
      if (file["file"] == "model.safetensors") return file["xxh3"].get<std::string>();
    }
    return std::string();
  };
  copy_checkpoint(checkpoint("qwen3"), folder.file("same"), [](auto&, Json&) {});
  copy_checkpoint(checkpoint("qwen3"), folder.file("other"), [](auto& tensors, Json&) {
    find_tensor(tensors, "model.norm.weight").bytes[0] ^= std::byte{1};
  });
  const std::string original = hash_of(checkpoint("qwen3"), "a");
  EXPECT_EQ(original.size(), 16U);
  EXPECT_EQ(hash_of(folder.file("same"), "b"), original);
  EXPECT_NE(hash_of(folder.file("other"), "c"), original);
}

TEST(Export, CopiesWhatBelongsToTheModelAndWritesRuntimeDefaults) {
  const TemporaryFolder folder;
  const std::string source = test_data("models/tiny-vl");
  const ExportOptions options = options_for(source, folder.file("package"));
  ASSERT_TRUE(run(options));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "generation_config.json", "preprocessor_config.json"}) {
    EXPECT_EQ(read_test_file(options.package + "/" + name), read_test_file(source + "/" + name)) << name;
    EXPECT_FALSE(read_test_file(options.package + "/" + name).empty()) << name;
  }
  const auto settings = read_json(options.package + "/config.json");
  ASSERT_TRUE(settings) << settings.error().message;
  for (const char* key : {"backend_type", "thread_num", "precision", "memory", "max_new_tokens", "min_p",
                          "repetition_penalty", "presence_penalty"}) {
    EXPECT_TRUE(settings->contains(key)) << key;
  }
  EXPECT_EQ((*settings)["temperature"], 0.7);
  EXPECT_EQ((*settings)["top_k"], 20);
  EXPECT_EQ((*settings)["top_p"], 0.8);
}

TEST(Export, GreedyCheckpointsStayGreedy) {
  const TemporaryFolder folder;
  copy_checkpoint(checkpoint("qwen3"), folder.file("checkpoint"), [](auto&, Json&) {});
  write_test_file(folder.file("checkpoint/generation_config.json"),
                  R"({"temperature": 0.6, "do_sample": false})");
  ASSERT_TRUE(run(options_for(folder.file("checkpoint"), folder.file("package"))));
  EXPECT_EQ((*read_json(folder.file("package/config.json")))["temperature"], 0.0);
}

TEST(Export, TakesTheChatTemplateFromTheTokenizerConfig) {
  const TemporaryFolder folder;
  copy_checkpoint(checkpoint("qwen3"), folder.file("checkpoint"), [](auto&, Json&) {});
  write_test_file(folder.file("checkpoint/tokenizer_config.json"), R"({"chat_template": "{{ messages }}"})");
  ASSERT_TRUE(run(options_for(folder.file("checkpoint"), folder.file("a"))));
  EXPECT_EQ(read_test_file(folder.file("a/chat_template.jinja")), "{{ messages }}");
  write_test_file(folder.file("checkpoint/chat_template.json"), R"({"chat_template": "{{ other }}"})");
  ASSERT_TRUE(run(options_for(folder.file("checkpoint"), folder.file("b"))));
  EXPECT_EQ(read_test_file(folder.file("b/chat_template.jinja")), "{{ other }}");
}

class FailedExport : public testing::Test {
 protected:
  /// The export of `options` fails with this error and leaves nothing but what was there.
  Error expect_nothing_left(const ExportOptions& options, const ProgressCallback& progress = nullptr) {
    const size_t before = folder_.entries();
    const auto result = run(options, progress);
    EXPECT_FALSE(result);
    EXPECT_EQ(folder_.entries(), before) << "something is left in the folder";
    return result ? Error{} : result.error();
  }
  TemporaryFolder folder_;
};

TEST_F(FailedExport, NanIsNamedWithFileTensorAndElement) {
  copy_checkpoint(checkpoint("qwen3"), folder_.file("checkpoint"), [](auto& tensors, Json&) {
    const uint16_t nan = 0x7fc0;
    std::memcpy(find_tensor(tensors, "model.layers.1.mlp.up_proj.weight").bytes.data() + 2 * (17 * 128 + 5),
                &nan, 2);
  });
  const ExportOptions options = options_for(folder_.file("checkpoint"), folder_.file("package"));
  const Error error = expect_nothing_left(options);
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("model.safetensors"), HasSubstr("model.layers.1.mlp.up_proj.weight"),
                    HasSubstr("[17, 5] is nan")));
}

TEST_F(FailedExport, InfinityInAVectorIsNamed) {
  copy_checkpoint(checkpoint("qwen3_5_text"), folder_.file("checkpoint"), [](auto& tensors, Json&) {
    const uint16_t infinity = 0xff80;
    EditableTensor& tensor = find_tensor(tensors, "model.layers.0.linear_attn.conv1d.weight");
    std::memcpy(tensor.bytes.data() + 2 * (4 * 9 + 2), &infinity, 2);
  });
  const Error error = expect_nothing_left(options_for(folder_.file("checkpoint"), folder_.file("package")));
  EXPECT_THAT(error.message, AllOf(HasSubstr("conv1d.weight"), HasSubstr("[9, 0, 2] is -inf")));
}

TEST_F(FailedExport, ValueBeyondF16IsNamedWithTheWayOut) {
  copy_checkpoint(checkpoint("qwen3"), folder_.file("checkpoint"), [](auto& tensors, Json&) {
    const uint16_t large = float_to_bfloat16(131072);
    std::memcpy(find_tensor(tensors, "model.layers.0.mlp.up_proj.weight").bytes.data() + 2 * 3, &large, 2);
  });
  const Error error =
      expect_nothing_left(options_for(folder_.file("checkpoint"), folder_.file("package"), "f16"));
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, AllOf(HasSubstr("[0, 3] is 131072"), HasSubstr("65504")));
  EXPECT_THAT(error.hint, HasSubstr("bf16"));
}

TEST_F(FailedExport, InterruptionLeavesNothing) {
  const ExportOptions options = options_for(checkpoint("qwen3"), folder_.file("package"));
  for (const int after : {0, 3, 20}) {
    int calls = 0;
    const Error error =
        expect_nothing_left(options, [&](const std::string&, uint64_t, uint64_t) { return calls++ < after; });
    EXPECT_EQ(error.code, ErrorCode::interrupted) << after;
    EXPECT_EQ(calls, after + 1);
  }
}

TEST_F(FailedExport, ProgressCountsEveryByteOfTheSource) {
  const ExportOptions options = options_for(checkpoint("qwen3"), folder_.file("package"));
  uint64_t last = 0;
  uint64_t expected = 0;
  const auto plan = plan_export(options);
  ASSERT_TRUE(plan);
  for (const ExportTensor& tensor : plan->tensors) expected += tensor.source_bytes;
  ASSERT_TRUE(run(options, [&](const std::string&, uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, expected);
    last = done;
    return true;
  }));
  EXPECT_EQ(last, expected);
}

TEST_F(FailedExport, FullDiskLeavesNothing) {
  // A limit on the file size fails the write in the same place as a full disk does.
  const ExportOptions options = options_for(checkpoint("qwen3"), folder_.file("package"));
  const auto plan = plan_export(options);
  ASSERT_TRUE(plan);
  struct rlimit former{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &former), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = former;
  small.rlim_cur = 200000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto result = export_package(options, *plan, nullptr);
  ::setrlimit(RLIMIT_FSIZE, &former);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::limit);
  EXPECT_THAT(result.error().message, HasSubstr("weights.safetensors"));
  EXPECT_EQ(folder_.entries(), 0U);
}

TEST_F(FailedExport, ExistingPackageIsKeptUnlessReplaceIsAsked) {
  ExportOptions options = options_for(checkpoint("qwen3"), folder_.file("package"));
  ASSERT_TRUE(run(options));
  const std::string before = read_test_file(options.package + "/manifest.json");
  options.linear = *parse_codec("w8");
  EXPECT_EQ(expect_nothing_left(options).code, ErrorCode::usage);
  EXPECT_EQ(read_test_file(options.package + "/manifest.json"), before);
  options.replace = true;
  const Error error =
      expect_nothing_left(options, [](const std::string&, uint64_t, uint64_t) { return false; });
  EXPECT_EQ(error.code, ErrorCode::interrupted);
  EXPECT_EQ(read_test_file(options.package + "/manifest.json"), before);
  ASSERT_TRUE(run(options));
  EXPECT_NE(read_test_file(options.package + "/manifest.json"), before);
  EXPECT_EQ(folder_.entries(), 1U);
}

TEST_F(FailedExport, TruncatedShardIsNamed) {
  std::filesystem::copy(checkpoint("qwen2_untied_sharded"), folder_.file("checkpoint"));
  const std::string shard = folder_.file("checkpoint/model-00002-of-00004.safetensors");
  std::filesystem::permissions(shard, std::filesystem::perms::owner_all);
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 100);
  const Error error = expect_nothing_left(options_for(folder_.file("checkpoint"), folder_.file("package")));
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, HasSubstr("model-00002-of-00004.safetensors"));
}

}  // namespace
}  // namespace hexlm
