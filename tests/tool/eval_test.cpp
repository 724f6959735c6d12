#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quantization/checkpoint_edit.hpp"
#include "tool/program.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string orders() { return test_data("models/tiny-vl/eval/orders.jsonl"); }

/// A model that says one character over and over: every token's embedding is the same but for one, which is
/// larger, so that it (or, where its product is negative, the first of the others) wins everywhere.
void write_repeating_model(const std::string& folder) {
  copy_checkpoint(tiny_model(), folder, [](std::vector<EditableTensor>& tensors, Json&) {
    EditableTensor& table = find_tensor(tensors, "model.language_model.embed_tokens.weight");
    ASSERT_EQ(table.dtype, DType::bf16);
    auto* values = reinterpret_cast<uint16_t*>(table.bytes.data());
    const auto columns = static_cast<size_t>(table.shape[1]);
    for (size_t row = 0; row < static_cast<size_t>(table.shape[0]); ++row) {
      for (size_t i = 0; i < columns; ++i) values[row * columns + i] = row == 0 ? 0x3f00 : 0x3e00;
    }
  });
}

TEST(Eval, AnswersTheOrdersExactlyInFloat) {
  const TemporaryFolder folder;
  const auto result = run_hexlm({"eval", tiny_model(), "--task", orders(), "--precision", "high", "--format",
                                 "json", "--min-exact", "1", "--max-degenerate", "0"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = result.json();
  EXPECT_EQ(json["rows"], 60);
  EXPECT_EQ(json["parsed"], 60);
  EXPECT_EQ(json["exact"], 60);
  EXPECT_EQ(json["field_accuracy"], 1.0);
  EXPECT_EQ(json["field_recall"], 1.0);
  EXPECT_EQ(json["degenerate"], 0);
  EXPECT_TRUE(json["failures"].empty());
  EXPECT_EQ(json["fields"]["count"]["correct"], 60);
  EXPECT_NEAR(json["rates"]["exact"]["low"].get<double>(), 0.9398, 1e-4);
  EXPECT_GT(json["reused_tokens"].get<int64_t>(), 60);
  EXPECT_EQ(json["verdict"], "pass");

  const auto page = run_hexlm({"eval", tiny_model(), "--task", orders(), "--limit", "2", "-n", "5",
                               "--report", folder.file("report.html"), "-q"});
  ASSERT_EQ(page.code, 0) << page.err;
  EXPECT_THAT(read_test_file(folder.file("report.html")), HasSubstr("\"kind\": \"eval\""));

  // Against it, a few rows with a different system message.
  write_test_file(folder.file("float.json"), result.out);
  const auto other = run_hexlm({"eval", tiny_model(), "--task", orders(), "--precision", "high", "--limit",
                                "6", "--system", "Answer in French.", "--against", folder.file("float.json"),
                                "-n", "40", "--min-exact", "1"});
  EXPECT_THAT(other.out, HasSubstr("against the earlier result: 6 rows"));
  if (other.out.find("0 now wrong") == std::string::npos) {
    EXPECT_EQ(other.code, 7);
  }
}

TEST(Eval, ReportsEveryBadLineBeforeAnythingRuns) {
  const TemporaryFolder folder;
  std::string lines;
  for (int i = 0; i < 16; ++i) lines += "{\"prompt\": \"a\", \"expected\": {\"a\": 1}}\n";
  lines += "{\"prompt\": \"a\", \"expected\": {\"a\": 1}\n";
  lines += "{\"prompt\": \"a\", \"expected\": {\"a\": 1}, \"image\": \"images/absent.png\"}\n";
  lines += "{\"prompt\": \"a\", \"expected\": \"{'a': 1}\"}\n";
  write_test_file(folder.file("t.jsonl"), lines);
  const auto result = run_hexlm({"eval", tiny_model(), "--task", folder.file("t.jsonl")});
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("3 of 19 rows can't be used"));
  EXPECT_THAT(result.err, HasSubstr("line 17: "));
  EXPECT_THAT(result.err, HasSubstr("line 18: the image"));
  EXPECT_THAT(result.err, HasSubstr("line 19: 'expected' is no JSON"));
  EXPECT_THAT(result.err, Not(HasSubstr("eval: ")));  // no row was run
  EXPECT_EQ(run_hexlm({"eval", tiny_model()}).code, 2);
}

TEST(Eval, CountsDegenerateAnswersAndRunWarns) {
  const TemporaryFolder folder;
  const std::string model = folder.file("repeating");
  write_repeating_model(model);
  const auto run = run_hexlm({"run", model, "Hello", "--temperature", "0", "-n", "40", "--format", "json"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("warning: the answer is degenerate"));
  EXPECT_NE(run.json()["degenerate"], "");
  const auto eval = run_hexlm({"eval", model, "--task", orders(), "--limit", "6", "-n", "30", "--format",
                               "json", "--max-degenerate", "0"});
  EXPECT_EQ(eval.code, 7) << eval.err;
  const Json json = eval.json();
  EXPECT_EQ(json["degenerate"], 6);
  EXPECT_EQ(json["parsed"], 0);
  EXPECT_EQ(json["field_recall"], 0.0);
  EXPECT_THAT(json["same_answer"].get<std::string>(), HasSubstr("6 of 6 different prompts"));
  EXPECT_THAT(eval.err, HasSubstr("error: 6 answers are degenerate, --max-degenerate is 0"));
}

TEST(Eval, ScoresChoicesOfATable) {
  const TemporaryFolder folder;
  write_test_file(folder.file("t.csv"), "question,A,B,answer\nOne?,yes,no,A\nTwo?,yes,no,B\n");
  const auto result =
      run_hexlm({"eval", tiny_model(), "--task", folder.file("t.csv"), "--raw", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = result.json();
  EXPECT_EQ(json["choices"]["accuracy"]["total"], 2);
  EXPECT_EQ(json["results"][0]["log_likelihoods"].size(), 2U);
  EXPECT_LT(json["results"][0]["log_likelihoods"][0].get<double>(), 0);
}

TEST(Eval, AnswersTheShapesExactlyInFloat) {
  const auto result =
      run_hexlm({"eval", tiny_model(), "--task", test_data("models/tiny-vl/eval/shapes.jsonl"), "--precision",
                 "high", "--format", "json", "--min-exact", "1"});
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  const Json json = result.json();
  EXPECT_EQ(json["rows"], 40);
  EXPECT_EQ(json["exact"], 40);
  EXPECT_EQ(json["objects"]["recall"], 1.0);
  EXPECT_EQ(json["objects"]["precision"], 1.0);
}

TEST(Eval, NamesTheLinesOfBadImages) {
  const TemporaryFolder folder;
  write_test_file(folder.file("a.png"), "no image");
  write_test_file(folder.file("t.jsonl"), R"({"prompt": "a", "expected": [1]}
{"prompt": "a", "expected": [1], "image": "a.png"})");
  const auto result = run_hexlm({"eval", tiny_model(), "--task", folder.file("t.jsonl")});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("line 2: "));
  EXPECT_THAT(result.err, Not(HasSubstr("eval: ")));
}

}  // namespace
}  // namespace hexlm
