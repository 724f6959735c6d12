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

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

std::string shapes_image(int number) {
  const std::string digits = std::to_string(number);
  return tiny_model() + "/eval/images/" + std::string(3 - digits.size(), '0') + digits + ".png";
}

ProgramResult run_greedy(std::vector<std::string> arguments) {
  const std::vector<std::string> common = {"--temperature", "0", "--precision", "high", "--format", "json"};
  arguments.insert(arguments.begin(), {"run", tiny_model()});
  arguments.insert(arguments.end(), common.begin(), common.end());
  return run_hexlm(arguments);
}

const Json& vision_truth() {
  static const Json truth = (*read_json(tiny_model() + "/eval/ground_truth.json"))["vision"];
  return truth;
}

TEST(ImageRun, AnswersAsTransformersDoes) {
  const Json& truth = vision_truth();
  ASSERT_EQ(truth.size(), 58U);
  for (size_t i = 0; i < truth.size(); i += 5) {
    const Json& row = truth[i];
    const auto result = run_greedy({row["prompt"].get<std::string>(), "--image",
                                    tiny_model() + "/eval/" + row["image"].get<std::string>(), "-n",
                                    std::to_string(row["greedy"].size())});
    ASSERT_EQ(result.code, 0) << result.err;
    const Json json = result.json();
    EXPECT_EQ(json["token_ids"], row["greedy"]) << i;
    EXPECT_EQ(json["text"], row["text"]) << i;
    EXPECT_EQ(json["prompt_tokens"], row["prompt_tokens"]) << i;
  }
}

TEST(ImageRun, ListsShapesExactly) {
  const std::string file = read_test_file(tiny_model() + "/eval/shapes.jsonl");
  const std::vector<std::string_view> lines = split(file, '\n');
  ASSERT_GE(lines.size(), 40U);
  for (size_t i = 3; i < 40; i += 7) {
    const Json row = *parse_json(lines[i], "shapes.jsonl");
    const auto result = run_greedy({row["prompt"].get<std::string>(), "--image",
                                    tiny_model() + "/eval/" + row["image"].get<std::string>()});
    ASSERT_EQ(result.code, 0) << result.err;
    const auto answer = parse_json(result.json()["text"].get<std::string>(), "answer");
    ASSERT_TRUE(answer) << result.out;
    EXPECT_EQ(*answer, row["expected"]) << i;
  }
}

TEST(ImageRun, EveryFormOfAPromptIsTheSame) {
  const Json& row = vision_truth()[2];
  const std::string text = row["prompt"];
  const std::string file = shapes_image(0);
  const std::string chat = "<|im_start|>user\n";
  const std::string answer = text + "<|im_end|>\n<|im_start|>assistant\n";
  const std::string placeholder = "<|vision_start|><|image_pad|><|vision_end|>";
  const std::vector<std::vector<std::string>> forms = {
      {"<img>" + file + "</img>" + text},
      {"<img> " + file + "\n</img>" + text},
      {placeholder + text, "--image", file},
      {"--raw", chat + "<img>" + file + "</img>" + answer},
      {"--raw", chat + placeholder + answer, "--image", file},
      // Whose file the name says nothing about.
      {text, "--image", file, "--chat-template", tiny_model() + "/chat_template.jinja"}};
  for (const auto& form : forms) {
    const auto result = run_greedy(form);
    ASSERT_EQ(result.code, 0) << form[0] << result.err;
    EXPECT_EQ(result.json()["token_ids"], row["greedy"]) << form[0];
    EXPECT_EQ(result.json()["prompt_tokens"], row["prompt_tokens"]) << form[0];
  }
  // Without a template, and without a place in the text: before it. 64 image tokens between two marks.
  const auto raw = run_greedy({"--raw", "Once upon a time", "--image", file, "-n", "1"});
  EXPECT_EQ(raw.json()["prompt_tokens"], 4 + 66);
}

TEST(ImageRun, SeveralImagesStandWhereTheyWerePut) {
  const std::string a = shapes_image(0);
  const std::string b = shapes_image(1);
  const auto flags = run_greedy({"Describe this image.", "--image", a, "--image", b, "--verbose"});
  ASSERT_EQ(flags.code, 0) << flags.err;
  const Json json = flags.json();
  ASSERT_EQ(json["images"].size(), 2U);
  EXPECT_EQ(json["images"][0]["file"], a);
  EXPECT_EQ(json["images"][1]["file"], b);
  EXPECT_EQ(json["images"][0]["tokens"], 64);
  EXPECT_EQ(json["images"][1]["grid_thw"], Json({1, 8, 8}));
  EXPECT_THAT(flags.err, HasSubstr("vision: load "));
  EXPECT_THAT(flags.err, HasSubstr("2 image(s): decode "));
  EXPECT_THAT(flags.last_error_line(),
              testing::MatchesRegex("placement: cpu [0-9]+/[0-9]+ nodes; vision cpu [0-9]+/[0-9]+ nodes"));
  EXPECT_EQ("placement: " + json["placement"].get<std::string>(), flags.last_error_line());

  const auto inline_form = run_greedy({"<img>" + a + "</img><img>" + b + "</img>Describe this image."});
  EXPECT_EQ(inline_form.json()["token_ids"], json["token_ids"]);
  const auto mixed = run_greedy({"<img>" + b + "</img>Describe this image.", "--image", a});
  EXPECT_EQ(mixed.json()["token_ids"], json["token_ids"]);
  const auto swapped = run_greedy({"Describe this image.", "--image", b, "--image", a});
  EXPECT_EQ(swapped.json()["prompt_tokens"], json["prompt_tokens"]);
  EXPECT_NE(swapped.json()["token_ids"], json["token_ids"]);
}

TEST(ImageRun, ASystemMessageStaysBeforeTheImage) {
  const std::string file = shapes_image(0);
  const auto system = run_greedy({"Describe this image.", "--image", file, "--system", "Be brief."});
  ASSERT_EQ(system.code, 0) << system.err;
  const auto raw =
      run_greedy({"--raw", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<img>" + file +
                               "</img>Describe this image.<|im_end|>\n<|im_start|>assistant\n"});
  EXPECT_EQ(system.json()["token_ids"], raw.json()["token_ids"]);
  EXPECT_EQ(system.json()["prompt_tokens"], raw.json()["prompt_tokens"]);
}

TEST(ImageRun, TimesAndCachesWhatItEncodes) {
  const std::string file = shapes_image(0);
  const TemporaryFolder folder;
  std::filesystem::copy(file, folder.file("same.png"));
  const auto result =
      run_greedy({"Describe this image.", "--image", file, "--image", folder.file("same.png"), "-n", "1"});
  const Json timings = result.json()["timings"];
  const Json& vision = timings["vision"];
  EXPECT_EQ(vision["images"], 2);
  EXPECT_EQ(vision["cache_hits"], 1);
  double sum = 0;
  for (const char* part : {"load_s", "decode_s", "preprocess_s", "tower_s"}) {
    EXPECT_GT(vision[part].get<double>(), 0) << part;
    sum += vision[part].get<double>();
  }
  EXPECT_NEAR(timings["vision_s"].get<double>(), sum, 1e-9);
  const auto text = run_greedy({"Describe this image.", "-n", "1"});
  EXPECT_EQ(text.json()["timings"]["vision_s"], 0.0);
  EXPECT_EQ(text.json()["images"], Json::array());
}

TEST(ImageRun, MaxPixelsScaleDown) {
  const std::string file = shapes_image(0);
  const auto result = run_greedy({"Describe this image.", "--image", file, "--image-max-pixels", "40000"});
  EXPECT_EQ(result.json()["images"][0]["tokens"], 36);
  const auto one =
      run_greedy({"Describe this image.", "--image", file, "--image-max-pixels", "1024", "-n", "1"});
  EXPECT_EQ(one.json()["images"][0]["tokens"], 1);
  const auto none = run_greedy({"Describe this image.", "--image", file, "--image-max-pixels", "1023"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("1023 pixels at most: one token takes 1024\nhint: "));
}

/// One `error:` line that holds `part`, nothing on stdout.
void expect_image_error(const std::vector<std::string>& arguments, int code, const std::string& part) {
  std::vector<std::string> words = {"run", tiny_model(), "-n", "1"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto result = run_hexlm(words);
  EXPECT_EQ(result.code, code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, testing::StartsWith("error: "));
  EXPECT_THAT(result.err, HasSubstr(part));
  const std::string rest = result.err.substr(result.err.find('\n') + 1);
  EXPECT_TRUE(rest.empty() || rest.starts_with("hint: ")) << result.err;
}

TEST(ImageErrors, ABadFileIsNamed) {
  const TemporaryFolder folder;
  const std::string png = read_test_file(shapes_image(0));
  std::string noise(4000, '\0');
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * i * 31 + i * 7 + 13);
  std::string wide = read_test_file(test_data("images/made/rgb.jpg"));
  const size_t frame = wide.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  for (const size_t side : {frame + 5, frame + 7}) wide.replace(side, 2, "\x75\x30");  // 30000
  const std::vector<std::pair<std::string, std::string>> files = {
      {"truncated.png", png.substr(0, png.size() / 2)},
      {"header.png", png.substr(0, 30)},
      {"empty.png", ""},
      {"text.jpg", "This is no image.\n"},
      {"noise.png", noise},
      {"wide.jpg", wide}};
  for (const auto& [name, content] : files) {
    write_test_file(folder.file(name), content);
    expect_image_error({"Describe", "--image", folder.file(name)}, 3, folder.file(name));
  }
  std::filesystem::create_directory(folder.file("folder.png"));
  expect_image_error({"Describe", "--image", folder.file("folder.png")}, 3, "folder.png");
  expect_image_error({"Describe", "--image", folder.file("absent.png")}, 3, "absent.png");
  expect_image_error({"Describe", "--image", ""}, 3, "empty file name");
  expect_image_error({"Describe <img>" + folder.file("absent.png") + "</img>"}, 3, "absent.png");
  expect_image_error({"Describe <img>absent</img>"}, 3, "--no-inline-images");
  expect_image_error({"Describe <img></img>"}, 3, "empty file name");
}

TEST(ImageErrors, PlaceholdersAreCounted) {
  const std::string file = shapes_image(0);
  expect_image_error({"<|image_pad|> and <|image_pad|>", "--image", file}, 2,
                     "the prompt has 2 <|image_pad|>, and 1 image(s) were given");
  expect_image_error({"--raw", "<|image_pad|>"}, 2, "the prompt has 1 <|image_pad|>, and 0 image(s)");
  expect_image_error({"hi", "--system", "<|image_pad|>", "--image", file}, 3,
                     "2 image placeholder(s), and 1 image(s)");
  expect_image_error({"--ids", "5,6140,6140,6", "--image", file}, 3,
                     "6140 2 time(s), expected 1 (one an image) or 64");
  const TemporaryFolder folder;
  write_test_file(folder.file("blind.jinja"), "{% for m in messages %}{{ m.role }}{% endfor %}");
  expect_image_error({"hi", "--image", file, "--chat-template", folder.file("blind.jinja")}, 3,
                     "0 image placeholder(s), and 1 image(s)");
}

TEST(ImageErrors, AModelThatSeesNoneSaysSo) {
  const std::string model = reference_checkpoint("qwen3");
  const std::string file = shapes_image(0);
  const TemporaryFolder folder;
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"run", model, "--ids", "1,2,3", "--image", file},
           {"run", model, "--ids", "1,2,3", "--image", "absent.png"},
           {"logits", model, "--ids", "1,2,3", "-o", folder.file("out"), "--image", file},
           {"bench", model, "-p", "0", "-n", "0", "--image", "64x64"}}) {
    const auto result = run_hexlm(command);
    EXPECT_EQ(result.code, 4) << command[0];
    EXPECT_EQ(result.out, "") << command[0];
    EXPECT_THAT(result.err, HasSubstr("the qwen3 model takes no images\nhint: ")) << command[0];
  }
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(ImageRun, TextNeedsNothingOfTheTower) {
  const TemporaryFolder folder;
  const std::string model = folder.file("model");
  std::filesystem::create_directory(model);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                           "chat_template.jinja", "generation_config.json"}) {
    std::filesystem::copy(tiny_model() + "/" + name, model);
  }
  EXPECT_EQ(run_hexlm({"run", model, "What is <img> in HTML?", "-n", "1"}).code, 0);
  EXPECT_EQ(run_hexlm({"run", model, "<img>a</img>", "-n", "1", "--no-inline-images"}).code, 0);
  const auto result = run_hexlm({"run", model, "Describe", "--image", shapes_image(0)});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("preprocessor_config.json"));
}

TEST(ImageChat, EarlierImagesAreNotRunAgain) {
  const std::vector<std::string> arguments = {"run",  tiny_model(), "--temperature", "0", "--precision",
                                              "high", "-v"};
  const auto result = type_to_hexlm(
      arguments, {{"/image FILE shows an image", ""},
                  {"> ", "/image absent.png\n"},
                  {"error: absent.png", ""},
                  {"> ", "/image " + shapes_image(0) + "\n"},
                  {"64 tokens, before the text of the next message", ""},
                  {"> ", "Describe this image.\n"},
                  {"A purple star is at the top left. A blue circle is at the bottom left.\r\n", ""},
                  {"vision: load ", ""},
                  {"prompt 85 tokens, ", ""},
                  // The end token of the answer, a line break, and the new turn.
                  {"> ", "Describe this image.\n"},
                  {"A purple star is at the middle left. A blue circle is at the bottom left.\r\n", ""},
                  {"prompt 125 tokens (21 new), ", ""},
                  {"> ", "<img>absent.png</img>\n"},
                  {"--no-inline-images", ""},
                  {"> ", "<img>" + shapes_image(1) + "</img>Describe this image.\n"},
                  {"1 image(s): decode ", ""},
                  {"prompt 183 tokens (39 new), ", ""},
                  {"> ", "/clear\n"},
                  {"> ", "<img>" + shapes_image(1) + "</img>Describe this image.\n"},
                  {"A black square is at the bottom right.\r\n", ""},
                  {"1 image(s) (1 from the cache)", ""},
                  {"prompt 37 tokens, ", ""},
                  {"> ", "/exit\n"},
                  {"; vision cpu ", ""}});
  EXPECT_EQ(result.code, 0) << result.out;
  // The second answer, from a cache that holds nothing.
  const auto fresh = run_greedy(
      {"--raw",
       "<|im_start|>user\n<img>" + shapes_image(0) +
           "</img>Describe this image.<|im_end|>\n<|im_start|>assistant\nA purple star is at the top left. A "
           "blue circle is at the bottom left.<|im_end|>\n<|im_start|>user\nDescribe this image.<|im_end|>\n"
           "<|im_start|>assistant\n"});
  EXPECT_EQ(fresh.json()["prompt_tokens"], 125);
  EXPECT_EQ(fresh.json()["text"],
            "A purple star is at the middle left. A blue circle is at the bottom left.");
}

TEST(ImageChat, ImagesOfTheCommandLineGoWithTheFirstMessage) {
  const auto result = type_to_hexlm(
      {"run", tiny_model(), "--temperature", "0", "--precision", "high", "-v", "--image", shapes_image(1)},
      {{"> ", "Describe this image.\n"},
       {"A black square is at the bottom right.\r\n", ""},
       {"prompt 37 tokens, ", ""},
       {"> ", "What is 40 + 3?\n"},
       {"(22 new)", ""},
       {"> ", "\x04"}});
  EXPECT_EQ(result.code, 0) << result.out;
  const auto bad = type_to_hexlm({"run", tiny_model(), "--image", "absent.png"}, {});
  EXPECT_EQ(bad.code, 3);
  EXPECT_THAT(bad.out, HasSubstr("absent.png"));
}

TEST(ImageChat, ATemplateThatChangesTheHistoryKeepsTheImage) {
  // Earlier answers become "ok": the session goes back to the end of the first question, image included.
  const TemporaryFolder folder;
  std::string source = read_test_file(tiny_model() + "/chat_template.jinja");
  const std::string content = "{{- message.content }}";
  const size_t at = source.find(content);
  ASSERT_NE(at, std::string::npos);
  source.replace(at, content.size(), "{{- 'ok' if message.role == 'assistant' else message.content }}");
  write_test_file(folder.file("ok.jinja"), source);
  const std::string answer =
      run_greedy({"--raw", "<|im_start|>user\n<img>" + shapes_image(0) +
                               "</img>Describe this image.<|im_end|>\n<|im_start|>assistant\nok"
                               "<|im_end|>\n<|im_start|>user\n描述这张图片。<|im_end|>\n"
                               "<|im_start|>assistant\n"})
          .json()["text"];
  const auto result = type_to_hexlm({"run", tiny_model(), "--temperature", "0", "--precision", "high", "-v",
                                     "--chat-template", folder.file("ok.jinja")},
                                    {{"> ", "<img>" + shapes_image(0) + "</img>Describe this image.\n"},
                                     {"prompt 85 tokens, ", ""},
                                     {"> ", "描述这张图片。\n"},
                                     {answer + "\r\n", ""},
                                     {"prompt 108 tokens (28 new), ", ""},
                                     {"> ", "/exit\n"}});
  EXPECT_EQ(result.code, 0) << result.out;
}

TEST(Tokenize, RendersImageParts) {
  const auto result = run_hexlm(
      {"tokenize", tiny_model(), "--jsonl", "-"},
      {.input = R"({"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": )"
                R"("What is 40 + 3?"}]}], "add_generation_prompt": true})"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.json()["text"],
            "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What is 40 + 3?<|im_end|>\n"
            "<|im_start|>assistant\n");
  // Such ids are what --image fills.
  const std::vector<std::string> greedy = {"--temperature", "0",   "--precision", "high", "-n", "4",
                                           "--format",      "json"};
  std::vector<std::string> ids = {"--ids", result.json()["ids"].dump(), "--image", shapes_image(2)};
  std::vector<std::string> text = {"What is 40 + 3?", "--image", shapes_image(2)};
  EXPECT_EQ(run_greedy(ids).json()["token_ids"], run_greedy(text).json()["token_ids"]);
}

class ImageReference : public testing::TestWithParam<const char*> {
 protected:
  std::string folder() const { return test_data(std::string("reference/") + GetParam()); }
};

std::vector<float> read_floats(const SafetensorsFile& file, const std::string& name) {
  const TensorView* tensor = file.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (tensor == nullptr) return {};
  std::vector<float> values(tensor->bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

double distance_of(const std::vector<float>& got, const std::vector<float>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / norm);
}

TEST_P(ImageReference, FeaturesLogitsAndTokensOfAFile) {
  const Json facts = *read_json(folder() + "/case.json");
  const auto expected = SafetensorsFile::open(folder() + "/expected.safetensors");
  ASSERT_TRUE(expected);
  const TemporaryFolder output;
  for (const Json& entry : facts["images"]) {
    const std::string name = entry["image"];
    const std::string stem = name.substr(0, name.find('.'));
    const std::string image = folder() + "/images/" + name;
    write_test_file(output.file("ids.json"), entry["input_ids"].dump());
    const std::string file = output.file(stem);
    const auto result =
        run_hexlm({"logits", folder() + "/checkpoint", "--ids", output.file("ids.json"), "--image", image,
                   "-o", file, "--last", "8", "--precision", "high", "--format", "json"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.json()["tokens"], entry["input_ids"].size());
    const auto got = SafetensorsFile::open(file);
    ASSERT_TRUE(got) << got.error().message;
    // From the file, whose scaled pixels may differ by one step of eight bits.
    EXPECT_LE(
        distance_of(read_floats(*got, "image_features"), read_floats(*expected, stem + ".image_features")),
        1e-2);
    EXPECT_LE(distance_of(read_floats(*got, "logits"), read_floats(*expected, stem + ".last_logits")), 1e-2);
    const TensorView* grid = got->find("image_grid_thw");
    ASSERT_NE(grid, nullptr);
    EXPECT_EQ(grid->shape, (std::vector<int64_t>{1, 3}));
    std::vector<int64_t> sides(3);
    std::memcpy(sides.data(), grid->bytes.data(), grid->bytes.size());
    EXPECT_EQ(Json(sides), entry["grid_thw"]);
    const auto run =
        run_hexlm({"run", folder() + "/checkpoint", "--ids", output.file("ids.json"), "--image", image,
                   "--precision", "high", "--temperature", "0", "-n", "16", "--ignore-eos"});
    EXPECT_EQ(*parse_json(run.out, "ids"), entry["greedy_16"]) << stem;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ImageReference,
                         testing::Values("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5_vl"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ImageLogits, OnePlaceholderIsAsGoodAsAll) {
  const std::string folder = test_data("reference/qwen3_vl");
  const Json entry = (*read_json(folder + "/case.json"))["images"][1];
  Json one = Json::array();
  for (const Json& id : entry["input_ids"]) {
    if (id != 500 || one.empty() || one.back() != 500) one.push_back(id);
  }
  ASSERT_LT(one.size(), entry["input_ids"].size());
  const TemporaryFolder output;
  std::vector<std::string> contents;
  for (const Json& ids : {one, entry["input_ids"]}) {
    const std::string file = output.file("out");
    const auto result = run_hexlm({"logits", folder + "/checkpoint", "--ids", ids.dump(), "--image",
                                   folder + "/images/small.png", "-o", file, "--hidden", "--format", "json"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.json()["tokens"], entry["input_ids"].size());
    EXPECT_EQ(result.json()["images"][0]["tokens"], 6);
    contents.push_back(read_test_file(file));
  }
  EXPECT_EQ(contents[0], contents[1]);
  EXPECT_EQ(run_hexlm({"logits", folder + "/checkpoint", "--ids", one.dump(), "--image",
                       folder + "/images/small.png", "-o", output.file("out"), "--last", "24"})
                .code,
            2);
}

TEST(Bench, MeasuresImages) {
  const auto result = run_hexlm({"bench", tiny_model(), "-p", "8", "-n", "0", "-r", "2", "--image", "64x64",
                                 "--image", "100x40", "--format", "json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = result.json();
  ASSERT_EQ(json["rows"].size(), 3U);
  EXPECT_EQ(json["rows"][0]["unit"], "tok/s");
  const Json& row = json["rows"][1];
  EXPECT_EQ(row["name"], "vision64x64");
  EXPECT_EQ(row["unit"], "images/s");
  EXPECT_EQ(row["image_tokens"], 4);
  EXPECT_EQ(row["samples"].size(), 2U);
  EXPECT_GT(row["mean"].get<double>(), 0);
  EXPECT_GT(row["tower_s"].get<double>(), 0);
  EXPECT_GT(row["preprocess_s"].get<double>(), 0);
  EXPECT_EQ(json["rows"][2]["name"], "vision100x40");
  EXPECT_THAT(json["placement"].get<std::string>(), HasSubstr("; vision cpu "));
  const auto text =
      run_hexlm({"bench", tiny_model(), "-p", "0", "-n", "0", "-r", "1", "--image", "64x64,96x64"});
  EXPECT_THAT(text.out, HasSubstr("vision64x64: 4 tokens, tower "));
  EXPECT_THAT(text.out, HasSubstr("vision96x64: 6 tokens, "));
  for (const char* size : {"", "64", "64x", "64x64,", "0x64", "64x64x3", "-1x5", "axb"}) {
    EXPECT_EQ(run_hexlm({"bench", tiny_model(), "--image", size}).code, 2) << size;
  }
  EXPECT_EQ(run_hexlm({"bench", tiny_model(), "-p", "0", "-n", "0", "--image", "100000x100000"}).code, 5);
  EXPECT_EQ(run_hexlm({"bench", tiny_model(), "-p", "0", "-n", "0", "--image", "6400x2"}).code, 3);
}

}  // namespace
}  // namespace hexlm
