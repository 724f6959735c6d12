#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/json_schema.hpp"
#include "support/test_adapter.hpp"
#include "tool/program.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string heldout() { return test_data("models/tiny-vl/eval/heldout.txt"); }

TEST(CompareVerb, JudgesAPackage) {
  const TemporaryFolder folder;
  const std::string package = folder.file("w4");
  ASSERT_EQ(run_hexlm({"export", tiny_model(), "-o", package}).code, 0);
  const std::string page = folder.file("report.html");
  const auto result = run_hexlm({"compare", tiny_model(), package, "--text", heldout(), "--tokens", "300",
                                 "--max-perplexity-increase", "0.3", "--report", page, "--format", "json"});
  EXPECT_EQ(result.code, 7) << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: perplexity_increase is"));
  const Json json = result.json();
  EXPECT_EQ(json["verdict"], "fail");
  EXPECT_EQ(json["tokens"], 300);
  EXPECT_GT(json["perplexity"].get<double>(), json["perplexity_reference"].get<double>());
  EXPECT_GT(json["kl_mean"].get<double>(), 0);
  EXPECT_LE(json["kl_mean"].get<double>(), json["kl_p99"].get<double>());
  EXPECT_LE(json["kl_p99"].get<double>(), json["kl_max"].get<double>());
  EXPECT_GT(json["layers"].size(), 50U);
  for (const char* key : {"name", "cosine", "snr_db", "max_abs"})
    EXPECT_TRUE(json["layers"][0].contains(key));
  EXPECT_TRUE(json["first_divergence"].is_null());
  EXPECT_EQ(json["culprits"].size(), 10U);
  // Issue: two forward passes may become three, plus time to compare; memory stays small.
  EXPECT_LT(json["peak_memory_bytes"].get<double>(), 1e9);
  EXPECT_THAT(read_test_file(page), HasSubstr("\"kind\": \"compare\""));
}

TEST(CompareVerb, ComparesSettingsOfOneModel) {
  const auto result =
      run_hexlm({"compare", tiny_model(), tiny_model(), "--precision-a", "high", "--threads-b", "1", "--ids",
                 "5,6,7,8,9,10,11,12", "--min-top1", "1", "--max-kl", "0.01"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("precision high"));
  EXPECT_THAT(result.out, HasSubstr("precision normal, kv cache f16, 1 thread"));
  EXPECT_THAT(result.out, HasSubstr("first divergence: none"));
  EXPECT_EQ(run_hexlm({"compare", tiny_model(), tiny_model()}).code, 2);  // nothing to run
  EXPECT_EQ(run_hexlm({"compare", tiny_model(), reference_checkpoint("qwen3"), "--ids", "1,2,3"}).code, 3);
}

TEST(CompareVerb, NamesWhereAnAdapterChangesTheModel) {
  const TemporaryFolder folder;
  TestAdapter adapter(folder.file("adapter"));
  adapter.add_pair("model.language_model.layers.3.mlp.down_proj", 256, 768);
  adapter.write();
  const auto compared = [&](std::vector<std::string> own) {
    std::vector<std::string> command = {"compare", tiny_model(), tiny_model(), "--text",
                                        heldout(), "--tokens",   "100",        "--greedy",
                                        "0",       "--format",   "json"};
    command.insert(command.end(), own.begin(), own.end());
    return run_hexlm(command);
  };
  for (const char* flag : {"--adapter-a", "--adapter-b"}) {
    const auto result = compared(
        {flag, folder.file("adapter"), flag[10] == 'a' ? "--adapter-scale-a" : "--adapter-scale-b", "2"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.json()["first_divergence"], "layers.3.mlp.down_proj") << flag;
    EXPECT_GT(result.json()["kl_mean"].get<double>(), 0) << flag;
  }
  const auto both = compared({"--adapter", folder.file("adapter")});
  ASSERT_EQ(both.code, 0) << both.err;
  EXPECT_EQ(both.json()["kl_max"], 0);
  EXPECT_EQ(compared({"--adapter-scale-b", "2"}).code, 2);
}

TEST(CompareVerb, ComparesCacheTypes) {
  const auto result = run_hexlm({"compare", tiny_model(), tiny_model(), "--precision", "high", "--kv-cache-b",
                                 "int8", "--text", heldout(), "--tokens", "200", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = result.json();
  EXPECT_THAT(json["reference"].get<std::string>(), HasSubstr("precision high, kv cache f32"));
  EXPECT_THAT(json["model"].get<std::string>(), HasSubstr("precision high, kv cache int8"));
  EXPECT_GT(json["kl_mean"].get<double>(), 0);
  EXPECT_LT(json["kl_mean"].get<double>(), 0.01);
  // The cache's own rounding is no divergence.
  EXPECT_TRUE(json["first_divergence"].is_null()) << json["first_divergence"];
}

TEST(Bench, KeepsToItsSchemaOverAGrid) {
  const TemporaryFolder folder;
  const auto schema = read_json(test_data("../../docs/bench.schema.json"));
  ASSERT_TRUE(schema);
  const std::vector<std::string> arguments = {"bench",       tiny_model(),  "-p",       "8",   "-n",
                                              "2",           "-r",          "2",        "-t",  "1,2",
                                              "--precision", "normal,high", "--format", "json"};
  const auto first = run_hexlm(arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(schema_violation(first.json(), *schema), "");
  EXPECT_EQ(first.json()["rows"].size(), 8U);
  EXPECT_EQ(first.json()["settings"].size(), 4U);
  write_test_file(folder.file("old.json"), first.out);
  std::vector<std::string> more = arguments;
  more.insert(more.end(),
              {"--profile", "--trace", folder.file("trace.json"), "--baseline", folder.file("old.json"),
               "--image", "64x64", "--report", folder.file("report.html")});
  const auto second = run_hexlm(more);
  ASSERT_EQ(second.code, 0) << second.err;
  const Json json = second.json();
  EXPECT_EQ(schema_violation(json, *schema), "");
  EXPECT_EQ(json["baseline"].size(), 8U);
  EXPECT_EQ(json["settings"][3]["profiles"].size(), 2U);
  EXPECT_GT(read_json(folder.file("trace.json"))->at("traceEvents").size(), 1000U);
  EXPECT_THAT(read_test_file(folder.file("report.html")), HasSubstr("\"kind\": \"bench\""));
  // The schema is not one that anything keeps to.
  Json broken = json;
  broken["rows"][0]["threads"] = "two";
  EXPECT_THAT(schema_violation(broken, *schema), StartsWith("$.rows[0].threads is string"));
  EXPECT_EQ(run_hexlm({"bench", tiny_model(), "--precision", "normal,hihg"}).code, 2);
  EXPECT_EQ(run_hexlm({"bench", tiny_model(), "--trace", "x.json"}).code, 2);
}

}  // namespace
}  // namespace hexlm
