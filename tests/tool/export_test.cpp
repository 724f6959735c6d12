#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "tool/program.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

double perplexity_of(const std::string& model) {
  const auto result = run_hexlm({"perplexity", model, "--text", test_data("models/tiny-vl/eval/heldout.txt"),
                                 "--precision", "high", "--format", "json"});
  EXPECT_EQ(result.code, 0) << result.err;
  return result.json()["perplexity"].get<double>();
}

/// transformers' float perplexity of the held-out text.
constexpr double float_perplexity = 55.61915262132735;

struct Quality {
  const char* codec;
  double least_bits;
  double most_bits;
  double allowed_increase;  ///< of the perplexity, relative
};

class ExportQuality : public testing::TestWithParam<Quality> {};

TEST_P(ExportQuality, StaysWithinItsBudget) {
  const TemporaryFolder folder;
  const std::string package = folder.file("package");
  const auto result = run_hexlm(
      {"export", tiny_model(), "-o", package, "--quant", GetParam().codec, "--verify", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = result.json();
  EXPECT_EQ(json["package"], package);
  EXPECT_GT(json["bytes"].get<uint64_t>(), 0U);
  EXPECT_GE(json["bits_per_weight"].get<double>(), GetParam().least_bits);
  EXPECT_LE(json["bits_per_weight"].get<double>(), GetParam().most_bits);
  EXPECT_GT(json["tensors"].size(), 80U);
  EXPECT_GT(json["peak_memory_bytes"].get<uint64_t>(), 0U);
  EXPECT_TRUE(json["seconds"].is_number());
  EXPECT_EQ(json["verification"]["verdict"], "pass");
  EXPECT_EQ(json["verification"]["tokens"], 64);
  // 8 bits, whatever the language model has.
  EXPECT_GT(json["verification"]["vision_relative_error"].get<double>(), 1e-4);
  EXPECT_LE(json["verification"]["vision_relative_error"].get<double>(), 0.05);
  EXPECT_LE(perplexity_of(package), float_perplexity * (1 + GetParam().allowed_increase));

  const Json inspected = run_hexlm({"inspect", package, "--format", "json"}).json();
  EXPECT_EQ(inspected["kind"], "package");
  EXPECT_DOUBLE_EQ(inspected["bits_per_weight"].get<double>(), json["bits_per_weight"].get<double>());
}

INSTANTIATE_TEST_SUITE_P(Codecs, ExportQuality,
                         testing::Values(Quality{"w8g128", 8, 8.6, 0.001}, Quality{"w4g64", 4.2, 5.8, 0.05}),
                         [](const auto& info) { return std::string(info.param.codec); });

TEST(Export, LosslessCodecsReproduceTheLogits) {
  const TemporaryFolder folder;
  for (const char* codec : {"f32", "bf16"}) {
    const auto result =
        run_hexlm({"export", reference_checkpoint("qwen3"), "-o", folder.file(codec), "--quant", codec,
                   "--lm-head", codec, "--embedding", codec, "--verify", "--format", "json"});
    ASSERT_EQ(result.code, 0) << result.err;
    const Json verification = result.json()["verification"];
    EXPECT_LE(verification["relative_error"].get<double>(), 1e-5);
    EXPECT_EQ(verification["top1_agreement"], 1.0);
    EXPECT_LE(verification["execution_error"].get<double>(), 1e-5);
  }
}

TEST(Export, TwoBitsVerifyWithAWarning) {
  const TemporaryFolder folder;
  const auto result =
      run_hexlm({"export", tiny_model(), "-o", folder.file("package"), "--quant", "w2", "--verify"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("top-1 agreement 1.6 %"));
  EXPECT_THAT(result.err,
              HasSubstr("warning: the package agrees with its source on 1.6 % of the next tokens"));
}

class ExportArchitecture : public testing::TestWithParam<const char*> {};

TEST_P(ExportArchitecture, VerifiesWithTheDefaults) {
  const TemporaryFolder folder;
  const auto result =
      run_hexlm({"export", reference_checkpoint(GetParam()), "-o", folder.file("package"), "--verify"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("bits per weight"));
  EXPECT_THAT(result.out, HasSubstr("verified: checksums match"));
}

INSTANTIATE_TEST_SUITE_P(Architectures, ExportArchitecture,
                         testing::Values("qwen2_tied", "qwen2_untied_sharded", "qwen2_yarn", "qwen3",
                                         "qwen3_moe", "llama3", "qwen3_5_text"));

TEST(Export, DryRunWritesNothing) {
  const TemporaryFolder folder;
  const auto text =
      run_hexlm({"export", tiny_model(), "-o", folder.file("package"), "--quant", "w4g64", "--dry-run"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, StartsWith("tensor"));
  EXPECT_THAT(text.out, HasSubstr("layers.0.mlp.down_proj.weight"));
  EXPECT_THAT(text.out, HasSubstr("bits per weight"));
  EXPECT_THAT(text.out, HasSubstr("peak memory about"));
  EXPECT_THAT(text.out, HasSubstr("free on the disk"));
  EXPECT_EQ(folder.entries(), 0U);
  const Json json =
      run_hexlm({"export", tiny_model(), "-o", folder.file("package"), "--dry-run", "--format", "json"})
          .json();
  EXPECT_EQ(json["dry_run"], true);
  EXPECT_GT(json["free_disk_bytes"].get<uint64_t>(), 0U);
  EXPECT_GT(json["peak_memory_bytes"].get<uint64_t>(), 0U);
  uint64_t bytes = 0;
  for (const Json& tensor : json["tensors"]) bytes += tensor["bytes"].get<uint64_t>();
  EXPECT_EQ(json["bytes"], bytes);
  EXPECT_EQ(run_hexlm({"export", tiny_model(), "--dry-run"}).code, 0);  // without an output, too
}

TEST(Export, ReplacesOnlyWhenAsked) {
  const TemporaryFolder folder;
  const std::string package = folder.file("package");
  ASSERT_EQ(run_hexlm({"export", reference_checkpoint("qwen3"), "-o", package}).code, 0);
  const auto refused = run_hexlm({"export", reference_checkpoint("qwen3"), "-o", package});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("package"));
  EXPECT_EQ(
      run_hexlm({"export", reference_checkpoint("qwen3"), "-o", package, "--force", "--quant", "f16"}).code,
      0);
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(Export, RecordsItsCommandLine) {
  const TemporaryFolder folder;
  const std::string package = folder.file("package");
  ASSERT_EQ(run_hexlm({"export", reference_checkpoint("qwen3"), "-o", package, "--quant", "w8"}).code, 0);
  const Json manifest = *read_json(package + "/manifest.json");
  EXPECT_THAT(manifest.dump(), HasSubstr(R"("hexlm","export")"));
  EXPECT_THAT(manifest.dump(), HasSubstr(R"("--quant","w8")"));
}

TEST(Export, CalibratedMethodsNeedText) {
  const auto result = run_hexlm({"export", tiny_model(), "-o", "x", "--method", "awq", "--format", "json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.json()["error"]["message"].get<std::string>(), HasSubstr("calibration"));
  EXPECT_EQ(run_hexlm({"export", tiny_model(), "-o", "x", "--method", "magic"}).code, 2);
}

TEST(Export, BestCalibratesAndSaysOnWhat) {
  const TemporaryFolder folder;
  const auto result =
      run_hexlm({"export", tiny_model(), "-o", folder.file("p"), "--quant", "w3g32s6", "--method", "best",
                 "--calibration", test_data("text/calibration_zh.txt"), "--calibration-samples", "4",
                 "--calibration-tokens", "64", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.json()["calibration"]["samples"], 4);
  EXPECT_THAT(result.err, HasSubstr("warning: no Latin text"));
  EXPECT_THAT(result.err, HasSubstr("estimate: "));
  const Json manifest = *read_json(folder.file("p/manifest.json"));
  EXPECT_EQ(manifest["provenance"]["method"], "best");
  EXPECT_EQ(manifest["provenance"]["calibration"]["tokens"], 256);
  EXPECT_EQ(manifest["provenance"]["calibration"]["tensors"].size(), 50U);
  EXPECT_GT(manifest["provenance"]["calibration"]["tensors"][0]["output_error"], 0);
}

TEST(Export, SpendsTheTargetBitsWhereTheyMatter) {
  const TemporaryFolder folder;
  const auto result =
      run_hexlm({"export", tiny_model(), "-o", folder.file("p"), "--quant", "w4g32s6", "--method", "mse",
                 "--target-bits", "4.5", "--calibration", test_data("text/calibration_en.txt"),
                 "--calibration-samples", "2", "--calibration-tokens", "128", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json report = result.json();
  std::set<std::string> codecs;
  for (const Json& choice : report["bit_choices"]) codecs.insert(choice["codec"].get<std::string>());
  EXPECT_GT(codecs.size(), 1U);
  double bits = 0;
  double elements = 0;
  for (const Json& tensor : report["tensors"]) {
    if (tensor["role"] != "linear") continue;
    bits += 8 * tensor["bytes"].get<double>();
    elements += tensor["shape"][0].get<double>() * tensor["shape"][1].get<double>();
  }
  EXPECT_LE(bits / elements, 4.5);
  EXPECT_GT(bits / elements, 4.3);
}

TEST(Export, TheTinyModelStillAnswersAtFourBits) {
  const TemporaryFolder folder;
  const std::string package = folder.file("package");
  ASSERT_EQ(run_hexlm({"export", tiny_model(), "-o", package, "--quant", "w4g64"}).code, 0);
  const auto result =
      run_hexlm({"run", package, "Extract the order as JSON: Han Meimei wants 20 black cups sent to Paris.",
                 "--temperature", "0"});
  EXPECT_EQ(result.code, 0) << result.err;
  const auto answer = parse_json(result.out, "answer");
  ASSERT_TRUE(answer) << result.out;
  EXPECT_EQ((*answer)["count"], 20);
  EXPECT_EQ((*answer)["city"], "Paris");
}

TEST(ExportPrepack, WritesWhatOpensAsAMemoryMapAndSaysSo) {
  const TemporaryFolder folder;
  const std::string package = folder.file("package");
  const auto result = run_hexlm({"export", tiny_model(), "-o", package, "--quant", "w4g64", "--prepack",
                                 "cpu-arm-dotprod", "--verify", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json prepacked = result.json()["prepacked"];
  EXPECT_EQ(prepacked["target"], "cpu-arm-dotprod");
  EXPECT_GT(prepacked["tensors"].get<int>(), 40);
  EXPECT_EQ(prepacked["bytes"], std::filesystem::file_size(package + "/prepacked/cpu.safetensors"));
  const Json inspected = run_hexlm({"inspect", package, "--format", "json"}).json();
  EXPECT_EQ(inspected["integrity"]["prepacked"]["tensors"], prepacked["tensors"]);
  EXPECT_THAT(run_hexlm({"inspect", package}).out, HasSubstr("prepacked       for cpu-arm-dotprod"));
  const std::vector<std::string> run = {"run", package, "--ids", "5,9,2", "-n", "8", "--temperature", "0"};
  const std::string tokens = run_hexlm(run).out;
  std::filesystem::remove_all(package + "/prepacked");
  EXPECT_EQ(run_hexlm(run).out, tokens);
  EXPECT_TRUE(run_hexlm({"inspect", package, "--format", "json"}).json()["integrity"]["prepacked"].is_null());
  const auto other = run_hexlm({"export", tiny_model(), "-o", folder.file("other"), "--prepack", "cpu-x87"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("did you mean cpu-x86-vnni?"));
}

}  // namespace
}  // namespace hexlm
