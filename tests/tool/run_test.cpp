#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tool/program.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

constexpr const char* placement_pattern = "placement: cpu [0-9]+/[0-9]+ nodes";

Json generation_truth() {
  return (*read_json(test_data("models/tiny-vl/eval/ground_truth.json")))["generation"];
}

TEST(Run, AnswersAsTransformersDoes) {
  for (const Json& truth : generation_truth()) {
    std::vector<std::string> arguments = {"run",
                                          tiny_model(),
                                          truth["prompt"].get<std::string>(),
                                          "--temperature",
                                          "0",
                                          "--precision",
                                          "high",
                                          "--format",
                                          "json",
                                          "-n",
                                          std::to_string(truth["greedy"].size())};
    if (!truth["chat"].get<bool>()) arguments.emplace_back("--raw");
    const auto result = run_hexlm(arguments);
    ASSERT_EQ(result.code, 0) << result.err;
    const Json json = result.json();
    EXPECT_EQ(json["text"], truth["text"]);
    EXPECT_EQ(json["token_ids"], truth["greedy"]);
    EXPECT_EQ(json["prompt_tokens"], truth["input_ids"].size());
    for (const char* key : {"load_s", "vision_s", "prefill_s", "decode_s"}) {
      EXPECT_TRUE(json["timings"][key].is_number()) << key;
    }
    EXPECT_THAT(json["placement"].get<std::string>(), StartsWith("cpu "));
    EXPECT_THAT(result.last_error_line(), MatchesRegex(placement_pattern));
  }
}

TEST(Run, StreamsTextAndEndsWithThePlacement) {
  const auto result = run_hexlm(
      {"run", tiny_model(), "What is 40 + 3?", "--temperature", "0", "--precision", "high", "--verbose"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "40+3=42\n");  // what the model says
  EXPECT_THAT(result.err, HasSubstr("tok/s"));
  EXPECT_THAT(result.last_error_line(), MatchesRegex(placement_pattern));
}

TEST(Run, TakesPromptsFromStdinFlagsAndIds) {
  const std::vector<std::string> common = {"--temperature", "0", "--precision", "high", "-n", "5"};
  const auto with = [&](std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), {"run", tiny_model()});
    arguments.insert(arguments.end(), common.begin(), common.end());
    const auto result = run_hexlm(arguments, {.input = input});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  const std::string expected = with({"--raw", "The little dog"});
  EXPECT_EQ(expected, " is very nice.\n");
  EXPECT_EQ(with({"--raw", "-p", "The little dog"}), expected);
  EXPECT_EQ(with({"--raw", "-p", "-"}, "The little dog\n"), expected);
  const Json ids = generation_truth()[1]["input_ids"];
  EXPECT_EQ(with({"--ids", ids.dump()}), expected);
}

TEST(Run, StopsAtAStopString) {
  const auto result =
      run_hexlm({"run", tiny_model(), "Once upon a time", "--raw", "--temperature", "0", "--precision",
                 "high", "--stop", "zzz", "--stop", "Lily", "--format", "json"});
  EXPECT_EQ(result.json()["text"], ", there was a little girl named ");
  EXPECT_EQ(result.json()["finish_reason"], "stop");
}

TEST(Run, TheSeedFixesTheAnswer) {
  const auto text = [](const std::string& seed) {
    return run_hexlm({"run", tiny_model(), "Once upon a time", "--raw", "--temperature", "1.5", "-n", "30",
                      "--seed", seed})
        .out;
  };
  EXPECT_EQ(text("1"), text("1"));
  EXPECT_NE(text("1"), text("2"));
}

TEST(Run, SamplesAsTheGenerationConfigSays) {
  // do_sample is true in generation_config.json: without flags two seeds differ, greedy would not.
  const auto text = [](const std::string& seed) {
    return run_hexlm({"run", tiny_model(), "Once upon a time", "--raw", "-n", "40", "--seed", seed}).out;
  };
  EXPECT_NE(text("1"), text("2"));
}

TEST(Run, APromptLongerThanTheContextIsAnErrorWithCounts) {
  const auto result =
      run_hexlm({"run", tiny_model(), "Once upon a time", "--raw", "--context", "3", "--format", "json"});
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.err, HasSubstr("error: the prompt has 4 tokens, the context 3\nhint: "));
  EXPECT_EQ(result.json()["error"]["code"], "limit");
  EXPECT_EQ(run_hexlm({"run", tiny_model(), "x", "--context", "9000"}).code, 2);
}

TEST(Run, SaysWhatItNeeds) {
  auto result = run_hexlm({"run", tiny_model()});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("no prompt given"));
  result = run_hexlm({"run", tiny_model(), "a", "-p", "b"});
  EXPECT_EQ(result.code, 2);
  result = run_hexlm({"run", tiny_model(), "a", "--raw", "--system", "b"});
  EXPECT_EQ(result.code, 2);
  result = run_hexlm({"run", tiny_model(), "a", "--backend", "opencl"});
  EXPECT_EQ(result.code, 6);
  result = run_hexlm({"run", tiny_model(), "a", "--memory", "high"});
  EXPECT_EQ(result.code, 4);
  result = run_hexlm({"run", reference_checkpoint("qwen2_tied"), "a"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("has no tokenizer.json"));
}

TEST(Run, AModelWithoutTokenizerTakesIds) {
  const auto result = run_hexlm({"run", reference_checkpoint("qwen2_tied"), "--ids", "1,2,3", "-n", "4",
                                 "--ignore-eos", "--temperature", "0", "--precision", "high"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, MatchesRegex("\\[[0-9]+, [0-9]+, [0-9]+, [0-9]+\\]\n"));
}

TEST(Run, CtrlCKeepsWhatThereIs) {
  ProgramOptions options;
  options.interrupt_after = 1;
  const auto text =
      run_hexlm({"run", tiny_model(), "Once upon a time", "--raw", "--ignore-eos", "-n", "8000"}, options);
  EXPECT_EQ(text.code, 130);
  EXPECT_GT(text.out.size(), 1U);
  EXPECT_THAT(text.last_error_line(), MatchesRegex(placement_pattern));
}

TEST(Run, AReaderThatLeavesStopsIt) {
  const auto result =
      run_hexlm({"run", tiny_model(), "Once upon a time", "--raw", "--ignore-eos", "-n", "8000"},
                {.close_stdout = true});
  EXPECT_EQ(result.code, 141);
}

TEST(Chat, RemembersTheConversation) {
  const auto result =
      type_to_hexlm({"run", tiny_model(), "--temperature", "0", "--precision", "high", "-n", "30"},
                    {{"> ", "What is 40 + 3?\n"},
                     {"40+3=42\r\n", ""},
                     {"> ", "What is 40 + 3?\n"},
                     {"> ", "/clear\n"},
                     {"> ", "What is 40 + 3?\n"},
                     {"40+3=42\r\n", ""},
                     {"> ", "/exit\n"}});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("placement: cpu"));
}

TEST(Chat, CtrlCStopsTheAnswerNotTheChat) {
  const auto result = type_to_hexlm({"run", tiny_model(), "--ignore-eos", "-n", "8000", "--temperature", "0"},
                                    {{"> ", "What is 40 + 3?\n"}, {"40+3=42", "\x03"}, {"> ", "/exit\n"}});
  EXPECT_EQ(result.code, 0) << result.out;
}

TEST(Chat, CtrlCAtThePromptEndsIt) {
  const auto result = type_to_hexlm({"run", tiny_model()}, {{"> ", "\x03"}});
  EXPECT_EQ(result.code, 130);
  EXPECT_THAT(result.out, HasSubstr("placement: cpu"));  // it ended by itself, not by the signal
}

TEST(Interrupt, OnePressEndsTheWaitForStdin) {
  const std::vector<std::vector<std::string>> commands = {{"run", tiny_model(), "-p", "-"},
                                                          {"tokenize", tiny_model(), "--jsonl", "-"},
                                                          {"tokenize", tiny_model(), "--file", "-"}};
  for (const int signal : {SIGINT, SIGTERM}) {
    for (const auto& command : commands) {
      const auto result = run_hexlm(command, {.signal_when_waiting = signal});
      EXPECT_EQ(result.code, 130) << command[0];
      EXPECT_THAT(result.err, HasSubstr("error: interrupted while waiting for stdin")) << command[0];
    }
  }
  const auto typed = type_to_hexlm({"run", tiny_model(), "-p", "-"}, {{"until Ctrl-D", "half a que\x03"}});
  EXPECT_EQ(typed.code, 130);
  EXPECT_THAT(typed.out, HasSubstr("error: interrupted while waiting for stdin"));
}

}  // namespace
}  // namespace hexlm
