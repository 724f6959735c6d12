#include <cmath>
#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.hpp"
#include "formats/safetensors.hpp"
#include "tool/program.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

std::vector<float> floats(const SafetensorsFile& file, const std::string& name,
                          const std::vector<int64_t>& shape) {
  const TensorView* tensor = file.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (tensor == nullptr) return {};
  EXPECT_EQ(tensor->dtype, DType::f32);
  EXPECT_EQ(tensor->shape, shape) << name;
  std::vector<float> values(tensor->bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference / norm);
}

/// ‖out − expected‖ / ‖expected‖ against transformers, for every architecture.
constexpr double tolerance = 1e-5;

class LogitsOfReference : public testing::TestWithParam<const char*> {};

TEST_P(LogitsOfReference, AreTransformers) {
  const std::string folder = test_data(std::string("reference/") + GetParam());
  const Json facts = *read_json(folder + "/case.json");
  const auto expected = SafetensorsFile::open(folder + "/expected.safetensors");
  ASSERT_TRUE(expected);
  const TemporaryFolder output;
  write_test_file(output.file("short.json"), facts["short"].dump());
  write_test_file(output.file("long.json"), facts["long"].dump());

  const auto result =
      run_hexlm({"logits", folder + "/checkpoint", "--ids", output.file("short.json"), "-o",
                 output.file("short.safetensors"), "--hidden", "--precision", "high", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.json()["tokens"], facts["short"].size());
  EXPECT_THAT(result.last_error_line(), MatchesRegex("placement: cpu [0-9]+/[0-9]+ nodes"));
  const auto got = SafetensorsFile::open(output.file("short.safetensors"));
  ASSERT_TRUE(got) << got.error().message;
  size_t compared = 0;
  for (const TensorView& tensor : expected->tensors()) {
    if (!tensor.name.starts_with("short.")) continue;
    const std::string name = tensor.name.substr(6);
    EXPECT_LE(relative_error(floats(*got, name, tensor.shape), floats(*expected, tensor.name, tensor.shape)),
              tolerance)
        << name;
    ++compared;
  }
  EXPECT_EQ(compared, got->tensors().size());

  const auto last = run_hexlm({"logits", folder + "/checkpoint", "--ids", output.file("long.json"), "-o",
                               output.file("long.safetensors"), "--last", "8", "--chunk", "7", "--precision",
                               "high", "--format", "json"});
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_NEAR(last.json()["nll_mean"].get<double>(), facts["long_mean_nll"].get<double>(), 1e-4);
  const auto rows = SafetensorsFile::open(output.file("long.safetensors"));
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->tensors().size(), 1U);
  const std::vector<int64_t> shape = expected->find("long.last_logits")->shape;
  EXPECT_LE(relative_error(floats(*rows, "logits", shape), floats(*expected, "long.last_logits", shape)),
            tolerance);
}

INSTANTIATE_TEST_SUITE_P(Architectures, LogitsOfReference,
                         testing::Values("qwen2_tied", "qwen2_untied_sharded", "qwen2_yarn", "qwen3",
                                         "qwen3_moe", "llama3", "qwen3_5_text"));

TEST(Logits, ChecksIdsAndLeavesNoFileBehind) {
  const TemporaryFolder output;
  const std::string file = output.file("out.safetensors");
  const std::string model = reference_checkpoint("qwen2_tied");
  auto result = run_hexlm({"logits", model, "--ids", "1,512", "-o", file});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("token 1 of the input is id 512, the vocabulary has 0 to 511"));
  EXPECT_EQ(run_hexlm({"logits", model, "--ids", "1,-2", "-o", file}).code, 2);
  EXPECT_EQ(run_hexlm({"logits", model, "--ids", "[]", "-o", file}).code, 2);
  EXPECT_EQ(run_hexlm({"logits", model, "--ids", "1,2", "-o", file, "--last", "3"}).code, 2);
  write_test_file(output.file("ids.json"), R"({"tokens": [1]})");
  EXPECT_EQ(run_hexlm({"logits", model, "--ids", output.file("ids.json"), "-o", file}).code, 3);
  EXPECT_EQ(output.entries(), 1U);
  result = run_hexlm({"logits", model, "--ids", "7", "-o", file, "--format", "json"});
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(result.json()["nll_mean"].is_null());
}

TEST(PerplexityVerb, OfTheHeldOutTextIsTransformers) {
  const auto result =
      run_hexlm({"perplexity", tiny_model(), "--text", test_data("models/tiny-vl/eval/heldout.txt"),
                 "--window", "512", "--precision", "high", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = result.json();
  EXPECT_NEAR(json["perplexity"].get<double>(), 55.62, 0.03);
  EXPECT_EQ(json["tokens"], 23997);
  EXPECT_EQ(json["scored"], 23950);
  EXPECT_GT(json["seconds"].get<double>(), 0);
  EXPECT_THAT(result.err, HasSubstr("perplexity: 50%"));  // no terminal: a line per 10 %
  EXPECT_THAT(result.last_error_line(), StartsWith("placement: cpu"));
}

TEST(PerplexityVerb, HasProtocols) {
  const TemporaryFolder folder;
  write_test_file(folder.file("t.txt"),
                  "The old man went to the sea, and the boy came with him.\nx = f(y);\n");
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"perplexity", tiny_model(), "--text", folder.file("t.txt"), "--format", "json"});
    const auto result = run_hexlm(more);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.json();
  };
  const Json windows = with({});
  const Json words = with({"--protocol", "words"});
  const Json sliding = with({"--window", "8", "--stride", "4"});
  const Json halves = with({"--window", "8", "--protocol", "second-half"});
  EXPECT_EQ(words["words"], 16);
  EXPECT_NEAR(std::log(words["perplexity"].get<double>()) * 16,
              windows["nll_mean"].get<double>() * windows["scored"].get<double>(), 1e-6);
  EXPECT_EQ(sliding["scored"], windows["scored"]);
  EXPECT_LT(halves["scored"], windows["scored"]);
  double sum = 0;
  for (const auto& [name, script] : windows["scripts"].items())
    sum += script["nll_mean"].get<double>() * script["scored"].get<double>();
  EXPECT_NEAR(sum, windows["nll_mean"].get<double>() * windows["scored"].get<double>(), 1e-6);
  EXPECT_GT(windows["scripts"]["code"]["scored"], 3);
  EXPECT_GT(windows["scripts"]["latin"]["scored"], 10);
  EXPECT_GT(windows["bits_per_byte"].get<double>(), 0);
}

TEST(PerplexityVerb, SaysWhatIsWrong) {
  EXPECT_EQ(run_hexlm({"perplexity", tiny_model(), "--text", "absent.txt"}).code, 3);
  EXPECT_EQ(
      run_hexlm({"perplexity", tiny_model(), "--text", tiny_model() + "/config.json", "--window", "9000"})
          .code,
      2);
  EXPECT_EQ(
      run_hexlm({"perplexity", tiny_model(), "--text", tiny_model() + "/config.json", "--window", "1"}).code,
      2);
}

TEST(Bench, MeasuresRows) {
  const std::vector<std::string> arguments = {"bench", tiny_model(), "-p", "32,0", "-n", "4",       "-d",
                                              "0,8",   "-r",         "2",  "-t",   "2",  "--format"};
  auto with = [&](const std::string& format) {
    auto all = arguments;
    all.push_back(format);
    const auto result = run_hexlm(all);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.last_error_line(), StartsWith("placement: cpu"));
    return result;
  };
  const Json json = with("json").json();
  ASSERT_EQ(json["rows"].size(), 4U);
  EXPECT_EQ(json["rows"][0]["name"], "pp32");
  EXPECT_EQ(json["rows"][3]["name"], "tg4@d8");
  for (const Json& row : json["rows"]) {
    EXPECT_EQ(row["backend"], "cpu");
    EXPECT_EQ(row["threads"], 2);
    EXPECT_EQ(row["unit"], "tok/s");
    EXPECT_GT(row["mean"].get<double>(), 0);
    EXPECT_TRUE(row["stddev"].is_number());
  }
  EXPECT_GT(json["load_s"].get<double>(), 0);
  EXPECT_GT(json["ttft_s"].get<double>(), 0);
  EXPECT_GT(json["peak_memory_bytes"].get<double>(), 19e6);
  EXPECT_THAT(json["placement"].get<std::string>(), StartsWith("cpu"));
  EXPECT_TRUE(json["environment"].contains("compiler"));
  EXPECT_THAT(with("md").out, HasSubstr("| tg4@d8 "));
  EXPECT_THAT(with("csv").out, StartsWith("name,backend,threads,"));
  EXPECT_EQ(split(with("jsonl").out, '\n').size(), 5U);
}

TEST(Inspect, ShowsTensorsNodesAndMemory) {
  const auto result = run_hexlm({"inspect", tiny_model(), "--format", "json", "--context", "1000"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = result.json();
  EXPECT_EQ(json["architecture"], "qwen3_5");
  EXPECT_EQ(json["bits_per_weight"], 16.0);
  uint64_t bytes = 0;
  for (const Json& tensor : json["tensors"]) bytes += tensor["bytes"].get<uint64_t>();
  EXPECT_EQ(json["bytes"], bytes);
  EXPECT_EQ(json["parameters"].get<uint64_t>() * 2, bytes);
  EXPECT_GT(json["nodes"].size(), 50U);
  // Two full-attention layers, 2 heads of 64, keys and values, fp16.
  EXPECT_EQ(json["memory"]["cache_bytes"]["normal"], 2 * 2 * 2 * 64 * 1000 * 2);
  EXPECT_EQ(json["memory"]["cache_bytes"]["high"], 2 * 2 * 2 * 64 * 1000 * 4);
  // Six delta-net layers: 4 heads of 64×64, and 3 earlier inputs of 512 channels.
  EXPECT_EQ(json["memory"]["recurrent_state_bytes"], 6 * 4 * (4 * 64 * 64 + 3 * 512));
  const auto graph = run_hexlm({"inspect", tiny_model(), "--graph"});
  EXPECT_THAT(graph.out, HasSubstr("gated_delta_net"));
  EXPECT_THAT(graph.out, HasSubstr("layers.3.self_attn"));
  EXPECT_THAT(run_hexlm({"inspect", tiny_model(), "--format", "csv"}).out,
              StartsWith("tensor,shape,role,codec,bytes\n"));
  EXPECT_EQ(run_hexlm({"inspect", tiny_model(), "--context", "9000"}).code, 2);
}

TEST(Synth, WritesACheckpointThatRuns) {
  const TemporaryFolder folder;
  Json config = *read_json(reference_checkpoint("qwen3") + "/config.json");
  write_test_file(folder.file("config.json"), config.dump());
  const std::string output = folder.file("synthesized");
  const auto result = run_hexlm({"synth", folder.file("config.json"), "-o", output, "--seed", "3", "--dtype",
                                 "f16", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = result.json();
  EXPECT_GT(json["parameters"].get<int64_t>(), 0);
  EXPECT_GE(json["bytes"].get<int64_t>(), 2 * json["parameters"].get<int64_t>());
  EXPECT_EQ(run_hexlm({"synth", folder.file("config.json"), "-o", output}).code, 2);  // it exists
  EXPECT_EQ(run_hexlm({"synth", folder.file("config.json"), "-o", output, "--seed", "3", "--dtype", "f16",
                       "--force"})
                .code,
            0);
  const auto run =
      run_hexlm({"run", output, "--ids", "1,2,3", "-n", "3", "--ignore-eos", "--format", "json"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.json()["token_ids"].size(), 3U);
}

}  // namespace
}  // namespace hexlm
