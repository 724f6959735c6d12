#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tool/program.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class EveryVerb : public testing::TestWithParam<const char*> {};

TEST_P(EveryVerb, HasHelpWithExamples) {
  const auto result = run_hexlm({GetParam(), "--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr(std::string("Usage: hexlm ") + GetParam()));
  EXPECT_THAT(result.out, HasSubstr("Examples:\n  # "));
  EXPECT_THAT(result.out, HasSubstr("Exit codes: 0 ok"));
  const auto overview = run_hexlm({"--help"});
  EXPECT_EQ(overview.code, 0);
  EXPECT_THAT(overview.out, HasSubstr(std::string("\n  ") + GetParam()));
}

TEST_P(EveryVerb, RefusesUnknownFlagsWithTheNearest) {
  const auto result = run_hexlm({GetParam(), "--formt", "json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith(std::string("error: unknown flag --formt of ") + GetParam() + "\n"));
  EXPECT_THAT(result.err, HasSubstr("hint: did you mean --format?"));
}

INSTANTIATE_TEST_SUITE_P(Verbs, EveryVerb,
                         testing::Values("export", "run", "logits", "tokenize", "perplexity", "inspect",
                                         "synth", "bench", "version"));

void expect_usage_error(const std::vector<std::string>& arguments, const std::string& message,
                        const std::string& hint = "") {
  const auto result = run_hexlm(arguments);
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("error: "));
  EXPECT_THAT(result.err, HasSubstr(message));
  if (!hint.empty()) {
    EXPECT_THAT(result.err, HasSubstr("\nhint: " + hint));
  }
}

TEST(Threads, ByAutoAreWhatVersionSaysAndRunShows) {
  const Json version = run_hexlm({"version", "--format", "json"}).json();
  const std::string choice = version["threads_auto"].get<std::string>();
  EXPECT_GE(std::stoi(choice), 1) << choice;
  EXPECT_LE(std::stoi(choice), version["threads"].get<int>());
  const auto said = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", tiny_model(), "--ids", "1,2", "-n", "1", "-v"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_hexlm(arguments).err;
  };
  EXPECT_THAT(said({}), HasSubstr(fmt::format("threads {} (auto: {})", std::stoi(choice), choice)));
  EXPECT_THAT(said({"--threads", "auto"}), HasSubstr("(auto: "));
  const std::string by_number = said({"--threads", "3"});
  EXPECT_THAT(by_number, HasSubstr("threads 3"));
  EXPECT_THAT(by_number, Not(HasSubstr("auto")));
  EXPECT_THAT(said({"--threads", "0"}),
              HasSubstr(fmt::format("threads {}\n", version["threads"].get<int>())));
}

TEST(CommandLine, RefusesWhatItCantRead) {
  expect_usage_error({}, "no verb given", "`hexlm --help`");
  expect_usage_error({"exprot"}, "there is no verb \"exprot\"", "did you mean export?");
  expect_usage_error({"inspect"}, "inspect needs MODEL");
  expect_usage_error({"inspect", "a", "b"}, "unexpected argument \"b\"");
  expect_usage_error({"inspect", "a", "--threads"}, "--threads");
  expect_usage_error({"inspect", "a", "-Z"}, "unknown flag -Z");
}

TEST(CommandLine, ChecksValuesBeforeItOpensAnything) {
  expect_usage_error({"run", "absent", "hi", "--threads", "-1"},
                     "--threads must be an integer from 0 to 1024 or auto, got \"-1\"");
  expect_usage_error({"run", "absent", "hi", "--threads", "two"}, "--threads must be an integer");
  expect_usage_error({"run", "absent", "hi", "--temperature", "1e999"},
                     "--temperature must be a number of at least 0");
  expect_usage_error({"run", "absent", "hi", "--top-p", "1.5"},
                     "--top-p must be a number from 0 to 1, got \"1.5\"");
  expect_usage_error({"run", "absent", "hi", "--precision", "hgih"},
                     "--precision must be one of low, normal, high", "did you mean high?");
  expect_usage_error({"bench", "absent", "-p", "512,x"}, "--prompt-tokens must be integers");
  expect_usage_error({"perplexity", "absent"}, "perplexity needs --text");
  expect_usage_error({"export", "absent"}, "export needs --output");
  expect_usage_error({"export", "absent", "-o", "x", "--quant", "w99"}, "--quant");
  expect_usage_error({"tokenize", "absent"}, "one of --text, --file, --ids and --jsonl");
  expect_usage_error({"logits", "absent", "--ids", "1,2"}, "logits needs --output");
}

TEST(CommandLine, UnderscoresAndEqualSignsAreAccepted) {
  const auto result = run_hexlm({"run", "absent", "hi", "--max_new_tokens=many", "--format", "text"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--max-new-tokens must be an integer"));
  EXPECT_THAT(run_hexlm({"run", "absent", "hi", "-nmany"}).err,
              HasSubstr("--max-new-tokens must be an integer"));
}

TEST(CommandLine, AValueMayLookLikeAFlag) {
  // Both reach the model, which is not there.
  EXPECT_EQ(run_hexlm({"run", "absent", "--presence-penalty", "-0.5", "hi"}).code, 3);
  EXPECT_EQ(run_hexlm({"run", "absent", "--stop", "-x", "--", "-dashed prompt"}).code, 3);
}

TEST(CommandLine, OfARepeatedFlagTheLastCounts) {
  EXPECT_THAT(run_hexlm({"inspect", "absent", "--threads", "x", "--threads", "2"}).err, HasSubstr("absent"));
  EXPECT_THAT(run_hexlm({"inspect", "absent", "--threads", "2", "--threads", "x"}).err,
              HasSubstr("--threads must be"));
}

TEST(CommandLine, ErrorsAreJsonWhenAsked) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"inspect", "absent", "--format", "json"}, {"inspect", "absent", "--format=json"}}) {
    const auto result = run_hexlm(arguments);
    EXPECT_EQ(result.code, 3);
    EXPECT_THAT(result.err, StartsWith("error: "));
    const Json error = result.json()["error"];
    EXPECT_EQ(error["code"], "bad_input");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("absent does not exist"));
    EXPECT_NE(error["hint"], "");
  }
  EXPECT_EQ(run_hexlm({"inspect", "--format", "json"}).json()["error"]["code"], "usage");
  EXPECT_EQ(run_hexlm({"nothing", "--format", "json"}).json()["error"]["code"], "usage");
  EXPECT_EQ(run_hexlm({"inspect", "absent"}, {.environment = {"HEXLM_FORMAT=json"}}).json()["error"]["code"],
            "bad_input");
}

TEST(CommandLine, AClosedPipeIsQuiet) {
  const auto result = run_hexlm({"--help"}, {.close_stdout = true});
  EXPECT_EQ(result.code, 141);
  EXPECT_EQ(result.err, "");
}

TEST(CommandLine, AFullDiskIsNoSuccess) {
  const TemporaryFolder folder;
  const std::string ids = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16";
  write_test_file(folder.file("text"), "Once upon a time, there was a little girl named Lily.");
  write_test_file(folder.file("lines"), "{\"text\": \"Once\"}\n{\"text\": \"upon\"}\n");
  int number = 0;
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"--help"},
           {"version"},
           {"run", "--help"},
           {"run", tiny_model(), "Once", "--raw", "-n", "40"},
           {"run", tiny_model(), "Once", "--raw", "-n", "4", "--format", "json"},
           {"export", tiny_model(), "--dry-run"},
           {"export", reference_checkpoint("qwen3"), "-o", folder.file("package")},
           {"synth", reference_checkpoint("qwen3"), "-o", folder.file("checkpoint")},
           {"logits", tiny_model(), "--ids", ids, "-o", folder.file("logits")},
           {"tokenize", tiny_model(), "--text", "Once"},
           {"tokenize", tiny_model(), "--jsonl", folder.file("lines")},
           {"perplexity", tiny_model(), "--text", folder.file("text")},
           {"inspect", tiny_model()},
           {"inspect", tiny_model(), "--graph"},
           {"bench", tiny_model(), "-p", "8", "-n", "2", "-r", "1"}}) {
    const auto result = run_hexlm(command, {.stdout_file = "/dev/full"});
    EXPECT_EQ(result.code, 5) << command[0] << " " << number;
    EXPECT_THAT(result.err, HasSubstr("error: stdout: write failed: No space left on device\nhint: "))
        << command[0] << " " << number;
    ++number;
  }
}

TEST(Settings, ComeFromVariables) {
  const auto bad = run_hexlm({"inspect", "absent"}, {.environment = {"HEXLM_THREADS=many"}});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("HEXLM_THREADS must be an integer"));
  // A flag wins over the variable, whose value is still checked.
  EXPECT_EQ(run_hexlm({"inspect", "absent", "--threads", "1"}, {.environment = {"HEXLM_THREADS=2"}}).code, 3);
}

TEST(Settings, ComeFromAFile) {
  const TemporaryFolder folder;
  const std::string file = folder.file("settings.json");
  write_test_file(file, R"({"temprature": 0.5})");
  auto result = run_hexlm({"run", "absent", "hi", "--config", file});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("settings.json: unknown key \"temprature\""));
  EXPECT_THAT(result.err, HasSubstr("hint: did you mean \"temperature\"?"));
  write_test_file(file, R"({"top_p": 3})");
  result = run_hexlm({"run", "absent", "hi", "--config", file});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("settings.json: top_p must be a number from 0 to 1, got \"3\""));
  // Another verb's setting is no mistake.
  write_test_file(file, R"({"window": 256, "thread_num": 2})");
  EXPECT_EQ(run_hexlm({"run", "absent", "hi", "--config", file}).code, 3);
  write_test_file(file, "[1]");
  EXPECT_EQ(run_hexlm({"run", "absent", "hi", "--config", file}).code, 2);
  write_test_file(file, "{");
  EXPECT_EQ(run_hexlm({"run", "absent", "hi", "--config", file}).code, 3);
}

TEST(Settings, ThePackageComesLast) {
  const TemporaryFolder folder;
  const std::string package = folder.file("package");
  ASSERT_EQ(run_hexlm({"export", tiny_model(), "-o", package, "-q"}).code, 0);
  Json settings = *read_json(package + "/config.json");
  settings["max_new_tokens"] = 3;
  settings["temperature"] = 0;
  write_test_file(package + "/config.json", settings.dump());
  const auto produced = [&](std::vector<std::string> more, std::vector<std::string> environment = {}) {
    std::vector<std::string> arguments = {"run", package, "Once upon a time", "--raw", "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_hexlm(arguments, {.environment = std::move(environment)}).json()["token_ids"].size();
  };
  EXPECT_EQ(produced({}), 3U);
  const std::string file = folder.file("settings.json");
  write_test_file(file, R"({"max_new_tokens": 4})");
  EXPECT_EQ(produced({"--config", file}), 4U);
  EXPECT_EQ(produced({"--config", file}, {"HEXLM_MAX_NEW_TOKENS=5"}), 5U);
  EXPECT_EQ(produced({"--config", file, "-n", "6"}, {"HEXLM_MAX_NEW_TOKENS=5"}), 6U);
  settings["max_new_token"] = 3;
  write_test_file(package + "/config.json", settings.dump());
  const auto unknown = run_hexlm({"run", package, "hi"});
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("config.json: unknown key \"max_new_token\""));
}

TEST(Version, NamesWhatItRunsOn) {
  const auto text = run_hexlm({"version"});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("version"));
  const Json json = run_hexlm({"version", "--format", "json"}).json();
  for (const char* key : {"version", "package_format", "compiler", "kernels", "kernel_sets", "features"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_THAT(json["kernel_sets"].get<std::vector<std::string>>(),
              testing::Contains(json["kernels"].get<std::string>()));
}

}  // namespace
}  // namespace hexlm
