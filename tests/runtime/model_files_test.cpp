#include "runtime/model_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace hexlm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

GenerationDefaults parse(const std::string& text) {
  const auto json = parse_json(text, "test");
  EXPECT_TRUE(json);
  const auto defaults = parse_generation_config(*json, "test");
  EXPECT_TRUE(defaults) << defaults.error().message;
  return *defaults;
}

TEST(GenerationConfig, IsGreedyUnlessItSamples) {
  EXPECT_EQ(parse("{}").sampling.temperature, 0);
  EXPECT_EQ(parse(R"({"temperature": 0.6})").sampling.temperature, 0);
  EXPECT_EQ(parse(R"({"temperature": 0.6, "do_sample": false})").sampling.temperature, 0);
  EXPECT_FLOAT_EQ(parse(R"({"temperature": 0.6, "do_sample": true})").sampling.temperature, 0.6F);
}

TEST(GenerationConfig, TakesTransformersDefaultsForWhatIsLeftOut) {
  const SamplingOptions sampling = parse(R"({"do_sample": true})").sampling;
  EXPECT_EQ(sampling.temperature, 1);
  EXPECT_EQ(sampling.top_k, 50);
  EXPECT_EQ(sampling.top_p, 1);
  EXPECT_EQ(sampling.min_p, 0);
  EXPECT_EQ(sampling.repetition_penalty, 1);
  EXPECT_EQ(parse(R"({"do_sample": true, "top_k": null, "temperature": null})").sampling.top_k, 50);
}

TEST(GenerationConfig, ReadsEveryValue) {
  const GenerationDefaults defaults = parse(
      R"({"do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05,
          "repetition_penalty": 1.05, "eos_token_id": [5, 7], "max_new_tokens": 2048})");
  EXPECT_EQ(defaults.sampling.top_k, 20);
  EXPECT_FLOAT_EQ(defaults.sampling.top_p, 0.8F);
  EXPECT_FLOAT_EQ(defaults.sampling.min_p, 0.05F);
  EXPECT_FLOAT_EQ(defaults.sampling.repetition_penalty, 1.05F);
  EXPECT_THAT(defaults.eos_tokens, ElementsAre(5, 7));
  EXPECT_EQ(defaults.max_new_tokens, 2048);
  EXPECT_THAT(parse(R"({"eos_token_id": 3})").eos_tokens, ElementsAre(3));
}

TEST(GenerationConfig, NamesWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"top_k": 1.5})", "'top_k' must be a count, got 1.5"},
      {R"({"top_k": 3000000000})", "'top_k' must be a count"},
      {R"({"temperature": "hot"})", "'temperature' must be a number, got \"hot\""},
      {R"({"do_sample": 1})", "'do_sample' must be true or false, got 1"},
      {R"({"eos_token_id": [1, -2]})", "'eos_token_id' must be a token id or a list of them"},
      {R"({"max_new_tokens": -1})", "'max_new_tokens' must be a count"}};
  for (const auto& [text, message] : cases) {
    const auto defaults = parse_generation_config(*parse_json(text, "test"), "folder/generation_config.json");
    ASSERT_FALSE(defaults) << text;
    EXPECT_EQ(defaults.error().code, ErrorCode::bad_input);
    EXPECT_THAT(defaults.error().message, HasSubstr(message));
    EXPECT_THAT(defaults.error().message, HasSubstr("folder/generation_config.json"));
  }
}

TEST(ChatFiles, PrefersTheJinjaFileAndFallsBackInOrder) {
  const TemporaryFolder folder;
  write_test_file(folder.file("tokenizer_config.json"),
                  R"({"chat_template": "from config", "bos_token": null, "eos_token": {"content": "</s>"}})");
  auto files = read_chat_files(folder.path());
  ASSERT_TRUE(files);
  EXPECT_EQ(files->source, "from config");
  EXPECT_EQ(files->special_tokens, Json({{"eos_token", "</s>"}}));
  write_test_file(folder.file("chat_template.json"), R"({"chat_template": "from json"})");
  EXPECT_EQ(read_chat_files(folder.path())->source, "from json");
  write_test_file(folder.file("chat_template.jinja"), "from jinja");
  files = read_chat_files(folder.path());
  EXPECT_EQ(files->source, "from jinja");
  EXPECT_EQ(files->origin, folder.file("chat_template.jinja"));
}

TEST(ChatFiles, TakesTheDefaultOfSeveralTemplates) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_chat_files(folder.path())->source);
  write_test_file(
      folder.file("tokenizer_config.json"),
      R"({"chat_template": [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]})");
  EXPECT_EQ(read_chat_files(folder.path())->source, "b");
  write_test_file(folder.file("tokenizer_config.json"),
                  R"({"chat_template": [{"name": "x", "template": "a"}]})");
  const auto files = read_chat_files(folder.path());
  ASSERT_FALSE(files);
  EXPECT_THAT(files.error().message, HasSubstr("chat_template"));
}

}  // namespace
}  // namespace hexlm
