#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.hpp"
#include "tool/program.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    auto json = parse_json(line, "line");
    EXPECT_TRUE(json) << line;
    lines.push_back(json ? *std::move(json) : Json());
  }
  return lines;
}

TEST(Tokenize, TurnsTextIntoIdsAndBack) {
  const auto ids = run_hexlm({"tokenize", tiny_model(), "--text", "Once upon a time"});
  EXPECT_EQ(ids.code, 0);
  EXPECT_EQ(ids.out, "[2680, 1374, 260, 869]\n");
  EXPECT_EQ(ids.err, "");
  EXPECT_EQ(
      run_hexlm({"tokenize", tiny_model(), "--text", "Once upon a time", "--format", "json"}).json()["ids"],
      Json({2680, 1374, 260, 869}));
  EXPECT_EQ(run_hexlm({"tokenize", tiny_model(), "--ids", "2680,1374, 260 869"}).out, "Once upon a time\n");
  EXPECT_EQ(run_hexlm({"tokenize", tiny_model(), "--ids", ids.out}).out, "Once upon a time\n");
  const TemporaryFolder folder;
  write_test_file(folder.file("ids.json"), "{\"ids\": [2680, 1374]}");
  EXPECT_EQ(run_hexlm({"tokenize", tiny_model(), "--ids", folder.file("ids.json")}).out, "Once upon\n");
}

TEST(Tokenize, ReadsFilesAndStdin) {
  const TemporaryFolder folder;
  write_test_file(folder.file("text.txt"), "Once upon a time");
  EXPECT_EQ(run_hexlm({"tokenize", tiny_model(), "--file", folder.file("text.txt")}).out,
            "[2680, 1374, 260, 869]\n");
  EXPECT_EQ(run_hexlm({"tokenize", tiny_model(), "--file", "-"}, {.input = "Once upon a time"}).out,
            "[2680, 1374, 260, 869]\n");
}

TEST(Tokenize, KeepsOrSkipsSpecialTokens) {
  EXPECT_EQ(run_hexlm({"tokenize", tiny_model(), "--ids", "2680,6137"}).out, "Once<|im_end|>\n");
  EXPECT_EQ(run_hexlm({"tokenize", tiny_model(), "--ids", "2680,6137", "--skip-special-tokens"}).out,
            "Once\n");
}

TEST(Tokenize, ALineInIsALineOut) {
  const std::string file = test_data("models/tiny-vl/eval/encodings.jsonl");
  const std::vector<Json> expected = lines_of(read_test_file(file));
  const auto result = run_hexlm({"tokenize", tiny_model(), "--jsonl", file});
  EXPECT_EQ(result.code, 0) << result.err;
  const std::vector<Json> got = lines_of(result.out);
  ASSERT_EQ(got.size(), expected.size());
  ASSERT_EQ(got.size(), 751U);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i]["ids"], expected[i]["ids"]) << "line " << i + 1;
}

TEST(Tokenize, RendersChats) {
  const std::string line = R"({"messages": [{"role": "user", "content": "What is 40 + 3?"}],)"
                           R"( "add_generation_prompt": true})";
  const auto result =
      run_hexlm({"tokenize", tiny_model(), "--jsonl", "-"}, {.input = line + "\n{\"ids\": [2680]}\n"});
  EXPECT_EQ(result.code, 0) << result.err;
  const std::vector<Json> got = lines_of(result.out);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0]["text"], "<|im_start|>user\nWhat is 40 + 3?<|im_end|>\n<|im_start|>assistant\n");
  const Json truth = *read_json(test_data("models/tiny-vl/eval/ground_truth.json"));
  EXPECT_EQ(got[0]["ids"], truth["generation"][4]["input_ids"]);
  EXPECT_EQ(got[1]["text"], "Once");

  const TemporaryFolder folder;
  write_test_file(folder.file("other.jinja"),
                  "{{ eos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}");
  const auto other =
      run_hexlm({"tokenize", tiny_model(), "--jsonl", "-", "--chat-template", folder.file("other.jinja")},
                {.input = line});
  EXPECT_EQ(lines_of(other.out).at(0)["text"], "<|im_end|>[What is 40 + 3?]");
}

TEST(Tokenize, ToolArgumentsMayComeAsJsonText) {
  // OpenAI's form, for a template that walks over the arguments and one that prints them.
  const auto rendered = [](const std::string& arguments, const std::string& name) {
    const std::string line =
        R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "",)"
        R"( "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": )" +
        arguments + "}}]}]}";
    const auto result = run_hexlm({"tokenize", tiny_model(), "--jsonl", "-", "--chat-template",
                                   test_data("tokenizers/chat_templates/" + name)},
                                  {.input = line});
    EXPECT_EQ(result.code, 0) << result.err;
    return lines_of(result.out).at(0)["text"].get<std::string>();
  };
  for (const char* name : {"qwen3_5_think.jinja", "qwen2_5.jinja", "qwen3.jinja"}) {
    const std::string object = rendered(R"({"city": "Paris", "days": 3})", name);
    EXPECT_EQ(rendered(R"("{\"city\":\"Paris\",\"days\":3}")", name), object) << name;
    EXPECT_EQ(rendered(R"("")", name), rendered("{}", name)) << name;
  }
  EXPECT_THAT(rendered(R"("{\"city\":\"Paris\"}")", "qwen3_5_think.jinja"),
              HasSubstr("<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>"));
}

TEST(Tokenize, NamesTheLineThatIsWrong) {
  const auto expect_error = [](const std::string& input, const std::string& message) {
    const auto result = run_hexlm({"tokenize", tiny_model(), "--jsonl", "-"}, {.input = input});
    EXPECT_EQ(result.code, 3) << input;
    EXPECT_THAT(result.err, HasSubstr(message));
  };
  expect_error("{\"text\": \"a\"}\nno json\n", "-:2");
  expect_error("{\"txet\": \"a\"}\n", "-:1: expected an object with");
  expect_error("[1]\n", "-:1: expected an object with");
  expect_error("{\"ids\": [1, 99999]}\n", "-:1: \"ids\": entry 1 is 99999, expected ids from 0 to");
  expect_error("{\"ids\": 5}\n", "-:1: \"ids\" is 5, expected ids from 0 to");
}

TEST(Tokenize, NeedsOnlyATokenizer) {
  const TemporaryFolder folder;
  const auto missing = run_hexlm({"tokenize", folder.path(), "--text", "a"});
  EXPECT_EQ(missing.code, 3);
  EXPECT_THAT(missing.err, HasSubstr("tokenizer.json does not exist"));
  write_test_file(folder.file("tokenizer.json"), read_test_file(tiny_model() + "/tokenizer.json"));
  EXPECT_EQ(run_hexlm({"tokenize", folder.path(), "--text", "Once"}).out, "[2680]\n");
  const auto chat = run_hexlm({"tokenize", folder.path(), "--jsonl", "-"}, {.input = R"({"messages": []})"});
  EXPECT_EQ(chat.code, 3);
  EXPECT_THAT(chat.err, HasSubstr("no chat template"));
  const auto invalid = run_hexlm({"tokenize", folder.path(), "--file", "-"}, {.input = "ab\xff"});
  EXPECT_EQ(invalid.code, 3);
}

}  // namespace
}  // namespace hexlm
