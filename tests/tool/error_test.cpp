#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.hpp"
#include "tool/program.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

/// What every error looks like: one line "error: …", one line "hint: …", nothing on stdout.
void expect_error(const ProgramResult& result, int code, const std::string& message,
                  const std::string& hint = "") {
  SCOPED_TRACE(result.err);
  EXPECT_EQ(result.code, code);
  EXPECT_EQ(result.out, "");
  std::vector<std::string> errors;
  std::vector<std::string> hints;
  for (const std::string_view line : split(result.err, '\n')) {
    if (line.starts_with("error: ")) errors.emplace_back(line);
    if (line.starts_with("hint: ")) hints.emplace_back(line);
  }
  ASSERT_EQ(errors.size(), 1U);
  ASSERT_EQ(hints.size(), 1U);
  EXPECT_THAT(errors[0], HasSubstr(message));
  EXPECT_THAT(hints[0], HasSubstr(hint));
}

TEST(Errors, OfTheCommandLine) {
  struct Case {
    std::vector<std::string> arguments;
    const char* message;
    const char* hint;
  };
  const std::string model = tiny_model();
  for (const Case& wrong : std::vector<Case>{
           {{"tokenize", model, "--ids", "1,,2"}, "--ids: entry 1 is empty", "a list such as"},
           {{"tokenize", model, "--ids", "1,2,"}, "--ids: entry 2 is empty", ""},
           {{"tokenize", model, "--ids", "[1,2"}, "expected one pair of brackets or none, got \"[1,2\"", ""},
           {{"tokenize", model, "--ids", "1,2]"}, "brackets", ""},
           {{"tokenize", model, "--ids", "[[1]]"}, "brackets", ""},
           {{"tokenize", model, "--ids", ""}, "--ids: holds no token id", ""},
           {{"tokenize", model, "--ids", "[]"}, "--ids: holds no token id", ""},
           {{"run", model, "--ids", "[]"}, "--ids: holds no token id", ""},
           {{"logits", model, "--ids", "[]", "-o", "x"}, "--ids: holds no token id", ""},
           {{"run", model, "--ids", "1,-5"}, "--ids: entry 1 is -5, expected a token id from 0 to", ""},
           {{"run", model, "--ids", "1-5"}, "--ids: entry 0 is \"1-5\"", ""},
           {{"run", model, "--ids", "9999999999"}, "--ids: entry 0 is 9999999999", ""},
           {{"export", model, "--quant", "", "--dry-run"}, "--quant: '' is no codec", "w4g64"},
           {{"export", model, "--lm-head", "", "--dry-run"}, "--lm-head: '' is no codec", "w4g64"},
           {{"run", model, "hi", "--top-p="},
            "--top-p must be a number from 0 to 1, got \"\"",
            "`hexlm run --help`"},
           {{"run", model, "hi", "--seed", "18446744073709551615"},
            "--seed must be an integer from 0 to 9000000000000000000, got \"18446744073709551615\"",
            "`hexlm run --help`"},
           {{"exprot", model}, "there is no verb \"exprot\"", "did you mean export?"},
           {{"serve", "x"}, "there is no verb \"serve\"", "hint: `hexlm --help` lists the verbs"},
           {{"run", model, "-hello"}, "unknown flag -hello of run", "goes behind a --"},
           {{"bench", model, "-p", "0", "-n", "0"}, "nothing to measure", "-p or -n"},
           {{"inspect", model, "-c", "9000"}, "--context 9000 is more than the model's", ""}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(wrong.arguments, " ")));
    expect_error(run_hexlm(wrong.arguments), 2, wrong.message, wrong.hint);
  }
  expect_error(run_hexlm({"inspect", "line\nbreak\x01"}), 3,
               "the model folder line\\nbreak\\x01 does not exist");
  expect_error(run_hexlm({"tokenize", model, "--ids", "3,99999"}), 3,
               "--ids: entry 1 is 99999, expected ids from 0 to 6143");
  expect_error(run_hexlm({"version"}, {.environment = {"HEXLM_THREAD=2"}}), 2,
               "the variable HEXLM_THREAD is no setting", "did you mean HEXLM_THREADS?");
  expect_error(run_hexlm({"run", model, "-p", "-"}, {.input = "ab\xff"}), 3,
               "the prompt: byte 2 is 0xff, expected UTF-8");
  EXPECT_EQ(run_hexlm({"inspect", model, "-c", "0"}).code, 0);
  EXPECT_EQ(run_hexlm({"run", model, "--raw", "-n", "1", "--", "-hello"}).code, 0);
  EXPECT_EQ(run_hexlm({"run", model, "hi", "--fallback", "-n", "1"}).code, 0);
}

TEST(Errors, OfIdsInAFile) {
  const TemporaryFolder folder;
  const std::string file = folder.file("ids.json");
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"[]", "ids.json: holds no token id"},
      {"{\"ids\": []}", "ids.json: holds no token id"},
      {"[1, \"two\"]", "ids.json: entry 1 is \"two\""},
      {"[1.5]", "ids.json: entry 0 is 1.5"},
      {"[1, 18446744073709551615]", "ids.json: entry 1 is 18446744073709551615"},
      {"[-7]", "ids.json: entry 0 is -7"},
      {"5", "expected a JSON array of token ids, got number"}};
  for (const auto& [content, message] : cases) {
    write_test_file(file, content);
    expect_error(run_hexlm({"run", tiny_model(), "--ids", file}), 3, message);
  }
}

TEST(Errors, AreOneLineOfJsonForRows) {
  const auto result = run_hexlm({"inspect", "absent", "--format", "jsonl"});
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.out.find('\n'), result.out.size() - 1);
  EXPECT_EQ(result.json()["error"]["code"], "bad_input");
  EXPECT_NE(result.json()["error"]["hint"], "");
}

TEST(Errors, OfSettingsSayWhoseTheyAre) {
  const TemporaryFolder folder;
  const std::string package = folder.file("package");
  ASSERT_EQ(run_hexlm({"export", tiny_model(), "-o", package, "-q"}).code, 0);
  const std::string settings = folder.file("settings.json");
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"stop": [1]})", "stop must be a string, got [1]"},
      {R"({"stop": 1})", "stop must be a string, got 1"},
      {R"({"system": true})", "system must be a string, got true"},
      {R"({"backend_type": 1})", "backend_type must be a string, got 1"},
      {R"({"temperature": -1})", "temperature must be a number of at least 0, got \"-1\""},
      {R"({"top_k": {"a": 1}})", "top_k must be an integer, got {\"a\":1}"},
      {R"({"thread_num": "many"})", "threads must be an integer from 0 to 1024 or auto, got \"many\""},
      {R"({"tempreature": 1})", "unknown key \"tempreature\""}};
  for (const auto& [content, message] : cases) {
    SCOPED_TRACE(content);
    write_test_file(settings, content);
    write_test_file(package + "/config.json", content);
    expect_error(run_hexlm({"run", tiny_model(), "hi", "--config", settings}), 2,
                 fmt::format("settings.json: {}", message));
    expect_error(run_hexlm({"run", package, "hi"}), 3, fmt::format("config.json: {}", message));
  }
  write_test_file(package + "/config.json", R"({"stop": ["zzz"]})");
  EXPECT_EQ(run_hexlm({"run", package, "hi", "-n", "1"}).code, 0);
  fs::copy(tiny_model(), folder.file("model"), fs::copy_options::recursive);
  write_test_file(folder.file("model/generation_config.json"), R"({"temperature": -1, "do_sample": true})");
  expect_error(run_hexlm({"run", folder.file("model"), "hi"}), 3,
               "generation_config.json: temperature must be");
}

#ifndef HEXLM_SANITIZED
TEST(Errors, OfMemoryAreNoCrash) {
  // Address space for the program and most of what it maps, so that some allocation fails.
  int failed = 0;
  for (size_t kilobytes = 16000; kilobytes < 60000; kilobytes += 1500) {
    const auto result =
        run_hexlm({"inspect", tiny_model(), "-t", "2"}, {.address_space_limit = kilobytes * 1024});
    EXPECT_THAT(result.code, testing::AnyOf(0, 5, 127))
        << kilobytes << ": " << result.err;  // 127: not even loaded
    if (result.code == 5) {
      ++failed;
      EXPECT_THAT(result.err, HasSubstr("error: "));
    }
  }
  EXPECT_GT(failed, 2);
}
#endif

TEST(Notes, WhatTheCheckpointLeavesOpen) {
  const TemporaryFolder folder;
  const std::string model = folder.file("model");
  const auto with = [&](const char* name, const std::function<void(Json&)>& edit) {
    fs::remove_all(model);
    fs::copy(reference_checkpoint(name), model, fs::copy_options::recursive);
    Json config = *read_json(model + "/config.json");
    edit(config);
    write_test_file(model + "/config.json", config.dump());
    const auto exported = run_hexlm({"export", model, "--dry-run"});
    const auto run = run_hexlm({"run", model, "--ids", "1,2", "-n", "1"});
    EXPECT_EQ(exported.code, run.code) << exported.err << run.err;
    if (run.code == 0) {
      EXPECT_THAT(run.err, HasSubstr(exported.err));
    }
    return exported;
  };
  EXPECT_THAT(with("qwen2_tied", [](Json&) {}).err, Not(HasSubstr("note: ")));
  EXPECT_THAT(with("qwen2_tied", [](Json& config) { config["tie_word_embeddings"] = false; }).err,
              HasSubstr("note: the checkpoint has no lm_head.weight though its config.json does not tie it"));
  EXPECT_THAT(with("qwen2_tied",
                   [](Json& config) {
                     config.erase("rope_theta");
                     config.erase("rope_parameters");
                   })
                  .err,
              HasSubstr("config.json: 'rope_theta' is missing: 10000 is taken"));
  EXPECT_THAT(with("qwen2_tied",
                   [](Json& config) {
                     config["rope_theta"] = 5000.0;
                     config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1000000.0}};
                   })
                  .err,
              HasSubstr("'rope_theta' is 1000000.0 and again 5000.0: the first is taken"));
  const auto llama = with("llama3", [](Json& config) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      if (config.contains(key)) config[key].erase("original_max_position_embeddings");
    }
  });
  expect_error(llama, 3, "original_max_position_embeddings' is missing");
}

TEST(Notes, OfAnExport) {
  const TemporaryFolder folder;
  const std::string package = folder.file("package");
  ASSERT_EQ(run_hexlm({"export", tiny_model(), "-o", package, "-q"}).code, 0);
  expect_error(run_hexlm({"export", package, "-o", folder.file("again")}), 3,
               "package: is a package already, expected a Hugging Face checkpoint");
  const auto plan = run_hexlm({"export", tiny_model(), "-o", package, "--dry-run"});
  EXPECT_THAT(plan.err, HasSubstr("package exists already: without --force the export will be refused"));
  const Json forecast =
      run_hexlm({"export", tiny_model(), "--dry-run", "--threads", "1024", "--format", "json"}).json();
  EXPECT_LT(forecast["peak_memory_bytes"].get<uint64_t>(), 100'000'000U);
  fs::copy(tiny_model(), folder.file("model"), fs::copy_options::recursive);
  write_test_file(folder.file("model/chat_template.jinja"), "{% if %}");
  EXPECT_THAT(run_hexlm({"export", folder.file("model"), "--dry-run"}).err,
              HasSubstr("warning: the chat template can't be used"));
}

TEST(Checkpoints, IndexAndShardsMustAgree) {
  const TemporaryFolder folder;
  fs::copy(reference_checkpoint("qwen2_untied_sharded"), folder.file("model"), fs::copy_options::recursive);
  const std::string path = folder.file("model/model.safetensors.index.json");
  const Json index = *read_json(path);
  Json edited = index;
  edited["weight_map"].erase("model.norm.weight");
  write_test_file(path, edited.dump());
  expect_error(run_hexlm({"inspect", folder.file("model")}), 3,
               "tensor 'model.norm.weight' is not among the");
  edited = index;
  edited["metadata"]["total_size"] = 12345;
  write_test_file(path, edited.dump());
  const auto result = run_hexlm({"inspect", folder.file("model")});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err,
              HasSubstr("metadata.total_size is 12345, the shards hold 1248128 bytes of tensors"));
}

TEST(Checkpoints, AMissingWeightIsNamedAsTheFileWould) {
  const TemporaryFolder folder;
  fs::copy(reference_checkpoint("qwen3"), folder.file("model"), fs::copy_options::recursive);
  Json config = *read_json(folder.file("model/config.json"));
  const int layers = config["num_hidden_layers"];
  config["num_hidden_layers"] = layers + 1;
  config.erase("layer_types");
  write_test_file(folder.file("model/config.json"), config.dump());
  for (const char* verb : {"inspect", "export"}) {
    expect_error(run_hexlm({verb, folder.file("model"), verb[0] == 'e' ? "--dry-run" : "-q"}), 3,
                 fmt::format("the weight 'model.layers.{}.", layers), "the nearest name is 'model.layers.");
  }
}

TEST(Chat, AnInvalidLineDoesNotEndIt) {
  const auto result = type_to_hexlm(
      {"run", tiny_model(), "-n", "5"},
      {{"> ", "a\xff\n"}, {"your line: byte 1 is 0xff, expected UTF-8", ""}, {"> ", "/exit\n"}});
  EXPECT_EQ(result.code, 0) << result.out;
  EXPECT_THAT(result.out, Not(HasSubstr("chat_template.jinja")));
}

TEST(Bench, TheCsvHoldsNumbers) {
  const auto result = run_hexlm({"bench", tiny_model(), "-p", "8", "-n", "2", "-r", "2", "--format", "csv"});
  ASSERT_EQ(result.code, 0) << result.err;
  const std::vector<std::string_view> lines = split(result.out, '\n');
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "name,backend,threads,precision,mean,stddev,median,unit");
  const char* number = "[0-9.e+]+";
  EXPECT_THAT(std::string(lines[1]),
              MatchesRegex(fmt::format("pp8,cpu,[0-9]+,normal,{},{},{},tok/s", number, number, number)));
  EXPECT_THAT(run_hexlm({"bench", tiny_model(), "-p", "8", "-n", "0", "-r", "1", "--format", "md"}).out,
              HasSubstr("| name "));
}

}  // namespace
}  // namespace hexlm
