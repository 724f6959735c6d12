#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <map>

#include "quantization/export.hpp"
#include "runtime/generate.hpp"
#include "runtime/vision_encoder.hpp"
#include "support/temporary_folder.hpp"
#include "tiny_model.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

const std::string evaluation = "models/tiny-vl/eval/";

/// A model with its session and encoder, answering questions about images as `run --image` does.
class Viewer {
 public:
  Viewer(std::shared_ptr<const Model> model, Precision precision, int threads = 2, int64_t chunk = 512)
      : model_(std::move(model)) {
    SessionOptions options;
    options.threads = threads;
    options.precision = precision;
    options.context = 1024;
    options.chunk = chunk;
    session_ = open_session(model_, options);
    VisionOptions vision;
    vision.threads = threads;
    vision.precision = precision;
    auto encoder = VisionEncoder::create(model_, vision);
    EXPECT_TRUE(encoder) << encoder.error().message;
    if (encoder) encoder_ = *std::move(encoder);
  }

  Session& session() { return *session_; }
  VisionEncoder& encoder() { return *encoder_; }

  /// A turn of the template: the images, then the text.
  std::vector<int32_t> tokens(size_t images, const std::string& text) const {
    Json content = Json::array();
    for (size_t i = 0; i < images; ++i) content.push_back({{"type", "image"}});
    content.push_back({{"type", "text"}, {"text", text}});
    const Json context = {{"messages", {{{"role", "user"}, {"content", content}}}},
                          {"add_generation_prompt", true}};
    const auto rendered = model_->chat_template()->render(context);
    EXPECT_TRUE(rendered);
    return rendered ? *model_->tokenizer()->encode(*rendered) : std::vector<int32_t>();
  }

  Prompt prompt(const std::vector<std::string>& files, const std::string& text) {
    std::vector<std::shared_ptr<const ImageFeatures>> images;
    for (const std::string& file : files) {
      const auto image = encoder_->encode_file(test_data(evaluation + file));
      EXPECT_TRUE(image) << image.error().message;
      if (image) images.push_back(*image);
    }
    auto made = make_prompt(*model_, tokens(images.size(), text), images);
    EXPECT_TRUE(made) << made.error().message;
    return made ? *std::move(made) : Prompt();
  }

  GenerateResult answer(const Prompt& prompt, int64_t most = 110) {
    GenerateOptions options;
    options.max_new_tokens = most;
    options.eos_tokens = model_->generation().eos_tokens;
    session_->reset();
    auto result = generate(*session_, prompt, options);
    EXPECT_TRUE(result) << result.error().message;
    return result ? *std::move(result) : GenerateResult();
  }

  std::vector<float> last_logits(const Prompt& prompt) {
    const auto logits = session_->forward_last(prompt);
    EXPECT_TRUE(logits) << logits.error().message;
    return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }

 private:
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<VisionEncoder> encoder_;
};

std::string package_of_tiny(const TemporaryFolder& folder) {
  ExportOptions options;
  options.checkpoint = test_data("models/tiny-vl");
  options.package = folder.file("package");
  const auto plan = plan_export(options);
  EXPECT_TRUE(plan && export_package(options, *plan, nullptr));
  return options.package;
}

int shapes_answered(Viewer& viewer) {
  std::ifstream rows(test_data(evaluation + "shapes.jsonl"));
  int exact = 0;
  int count = 0;
  for (std::string line; std::getline(rows, line); ++count) {
    const auto row = parse_json(line, "shapes.jsonl");
    EXPECT_TRUE(row);
    if (!row) continue;
    const std::string text =
        viewer
            .answer(viewer.prompt({(*row)["image"].get<std::string>()}, (*row)["prompt"].get<std::string>()))
            .text;
    const auto answer = parse_json(text, "answer");
    exact += answer && *answer == (*row)["expected"] ? 1 : 0;
  }
  EXPECT_EQ(count, 40);
  return exact;
}

/// Each of transformers' greedy tokens is the likeliest after those before it: the whole answer in one pass.
void expect_greedy(Viewer& viewer, const Prompt& prompt, const std::vector<int32_t>& expected) {
  Prompt whole = prompt;
  whole.tokens.insert(whole.tokens.end(), expected.begin(), expected.end() - 1);
  const auto vocabulary = static_cast<size_t>(viewer.session().model().config().text.vocabulary_size);
  std::vector<int32_t> likeliest;
  viewer.session().reset();
  const auto collect = [&](int64_t, int64_t rows, std::span<const float> logits) {
    for (int64_t i = 0; i < rows; ++i) {
      const auto row = logits.subspan(static_cast<size_t>(i) * vocabulary, vocabulary);
      likeliest.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
    return Status();
  };
  const Status status = viewer.session().forward(whole, static_cast<int64_t>(expected.size()), collect);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(likeliest, expected);
}

TEST(VisionModel, AnswersAsTransformersDoes) {
  Viewer viewer(open_tiny_model(), Precision::high);
  const auto truth = read_json(test_data(evaluation + "ground_truth.json"));
  ASSERT_TRUE(truth);
  ASSERT_EQ((*truth)["vision"].size(), 58U);
  int count = 0;
  for (const Json& entry : (*truth)["vision"]) {
    SCOPED_TRACE(entry["image"].get<std::string>() + " " + entry["prompt"].get<std::string>());
    const Prompt prompt =
        viewer.prompt({entry["image"].get<std::string>()}, entry["prompt"].get<std::string>());
    EXPECT_EQ(prompt.tokens.size(), entry["prompt_tokens"].get<size_t>());
    const auto expected = entry["greedy"].get<std::vector<int32_t>>();
    expect_greedy(viewer, prompt, expected);
    if (count++ % 12 != 0) continue;  // token by token, as a user gets them
    const GenerateResult result = viewer.answer(prompt, static_cast<int64_t>(expected.size()));
    EXPECT_EQ(result.token_ids, expected);
    EXPECT_EQ(result.text, entry["text"].get<std::string>());
  }
  // The 40 images come up to four times.
  EXPECT_EQ(viewer.encoder().timings().images, 58);
  EXPECT_EQ(viewer.encoder().timings().cache_hits, 18);
}

/// Those of the answers above that are about shapes.jsonl say what its rows expect.
TEST(VisionModel, ShapesInFloat) {
  const auto truth = read_json(test_data(evaluation + "ground_truth.json"));
  ASSERT_TRUE(truth);
  std::map<std::string, Json> answers;
  for (const Json& entry : (*truth)["vision"]) {
    const auto answer = parse_json(entry["text"].get<std::string>(), "answer");
    if (answer) answers[entry["image"].get<std::string>() + entry["prompt"].get<std::string>()] = *answer;
  }
  std::ifstream rows(test_data(evaluation + "shapes.jsonl"));
  int count = 0;
  for (std::string line; std::getline(rows, line); ++count) {
    const auto row = parse_json(line, "shapes.jsonl");
    ASSERT_TRUE(row);
    EXPECT_EQ(answers[(*row)["image"].get<std::string>() + (*row)["prompt"].get<std::string>()],
              (*row)["expected"]);
  }
  EXPECT_EQ(count, 40);
}

TEST(VisionModel, ShapesQuantized) {
  const TemporaryFolder folder;
  const auto model = Model::open(package_of_tiny(folder), {2, true, {}});
  ASSERT_TRUE(model) << model.error().message;
  Viewer viewer(*model, Precision::normal);
  EXPECT_GE(shapes_answered(viewer), 39);
}

TEST(VisionModel, ThreadsAndChunksDontChangeABit) {
  const std::string file = "images/003.png";
  Viewer one(open_tiny_model(), Precision::normal, 1);
  const Prompt prompt = one.prompt({file, "images/004.png"}, "Describe this image.");
  const std::vector<float> expected = one.last_logits(prompt);
  for (const int threads : {2, 3, 5}) {
    Viewer viewer(open_tiny_model(), Precision::normal, threads);
    const Prompt same = viewer.prompt({file, "images/004.png"}, "Describe this image.");
    EXPECT_EQ(same.images[0]->features, prompt.images[0]->features) << threads;
    EXPECT_EQ(viewer.last_logits(same), expected) << threads;
  }
  // Cut through the images. The recurrent state adds in another order.
  const auto agree = [&](int64_t chunk) {
    Viewer viewer(open_tiny_model(), Precision::high, 1, chunk);
    Viewer whole(open_tiny_model(), Precision::high, 1);
    const std::vector<float> a = viewer.last_logits(prompt);
    const std::vector<float> b = whole.last_logits(prompt);
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i)
      worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - b[i]));
    return worst;
  };
  for (const int64_t chunk : {1, 7, 50}) EXPECT_LE(agree(chunk), 2e-4) << chunk;
}

/// A conversation that goes on after an image is the same whether its turns come together or one by one.
TEST(VisionModel, LaterTurnsContinueAtTheRightPosition) {
  Viewer viewer(open_tiny_model(), Precision::high);
  const Prompt first = viewer.prompt({"images/005.png"}, "Describe this image.");
  const Prompt second = viewer.prompt({"images/006.png"}, "And this one?");
  const std::vector<int32_t> text = viewer.tokens(0, "Once upon a time");
  Prompt whole = first;
  for (const std::vector<int32_t>& more : {text, second.tokens, text}) {
    whole.tokens.insert(whole.tokens.end(), more.begin(), more.end());
  }
  whole.images.push_back(second.images[0]);
  const std::vector<float> expected = viewer.last_logits(whole);

  viewer.session().reset();
  viewer.last_logits(first);
  ASSERT_TRUE(viewer.session().forward_last(text));
  viewer.last_logits(second);
  const auto snapshot = viewer.session().state().snapshot();
  ASSERT_TRUE(snapshot);
  const auto near = [&](std::span<const float> got) {
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - expected[i]));
    }
    return worst;
  };
  EXPECT_LE(near(*viewer.session().forward_last(text)), 2e-4);
  // Rewound to after the second image, positions go on from there again.
  ASSERT_TRUE(viewer.session().state().restore(**snapshot));
  EXPECT_LE(near(*viewer.session().forward_last(text)), 2e-4);
  // A new conversation begins at position 0.
  viewer.session().reset();
  EXPECT_LE(near(viewer.last_logits(whole)), 1e-6);
}

TEST(VisionModel, PrefixesThatASessionHolds) {
  Viewer viewer(open_tiny_model(), Precision::high);
  const Prompt prompt = viewer.prompt({"images/005.png", "images/006.png"}, "Describe this image.");
  const auto image_token = open_tiny_model()->config().vision->image_token;
  const auto begin =
      std::find(prompt.tokens.begin(), prompt.tokens.end(), image_token) - prompt.tokens.begin();
  const int64_t end = begin + prompt.images[0]->tokens;
  EXPECT_EQ(whole_prefix(prompt, begin + 1, image_token), begin);
  EXPECT_EQ(whole_prefix(prompt, begin, image_token), begin);
  EXPECT_EQ(whole_prefix(prompt, end, image_token), end);
  const auto rest = drop_prefix(prompt, end + 1, image_token);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->images.size(), 1U);
  EXPECT_EQ(rest->images[0], prompt.images[1]);
  EXPECT_EQ(rest->tokens.size(), prompt.tokens.size() - static_cast<size_t>(end + 1));
  EXPECT_THAT(drop_prefix(prompt, end - 1, image_token).error().message, HasSubstr("inside image 1"));
}

TEST(VisionModel, RefusesPromptsThatDontFitTheirImages) {
  const auto model = open_tiny_model();
  Viewer viewer(model, Precision::high);
  Prompt prompt = viewer.prompt({"images/005.png"}, "Describe this image.");
  const auto count = make_prompt(*model, viewer.tokens(2, "text"), prompt.images);
  EXPECT_THAT(count.error().message, HasSubstr("2 image placeholder(s), and 1 image(s)"));
  Prompt shorter = prompt;
  shorter.tokens.erase(
      std::find(shorter.tokens.begin(), shorter.tokens.end(), model->config().vision->image_token));
  EXPECT_EQ(viewer.session().forward_last(shorter).error().code, ErrorCode::bad_input);
  auto narrow = std::make_shared<ImageFeatures>(*prompt.images[0]);
  narrow->width = 8;
  prompt.images[0] = narrow;
  EXPECT_EQ(viewer.session().forward_last(prompt).error().code, ErrorCode::usage);
}

TEST(VisionEncoder, KeepsWhatFitsAndLimitsPixels) {
  const auto model = open_tiny_model();
  VisionOptions options;
  options.max_pixels = 32 * 32 - 1;
  EXPECT_EQ(VisionEncoder::create(model, options).error().code, ErrorCode::usage);
  options.max_pixels = 4 * 32 * 32;
  options.cache_bytes = 1;
  const auto encoder = VisionEncoder::create(model, options);
  ASSERT_TRUE(encoder) << encoder.error().message;
  // Nothing is loaded before there is an image.
  EXPECT_EQ((*encoder)->weight_bytes(), 0U);
  for (int i = 0; i < 2; ++i) {
    const auto image = (*encoder)->encode_file(test_data(evaluation + "images/001.png"));
    ASSERT_TRUE(image) << image.error().message;
    EXPECT_LE((*image)->tokens, 4);
  }
  EXPECT_EQ((*encoder)->timings().cache_hits, 0);
  EXPECT_GT((*encoder)->weight_bytes(), 0U);
  EXPECT_THAT((*encoder)->placement(), HasSubstr("cpu"));
  PreparedImage odd;
  odd.grid = {1, 3, 4};
  EXPECT_EQ((*encoder)->encode_prepared(odd).error().code, ErrorCode::usage);
  EXPECT_EQ((*encoder)->encode_file(test_data("no such file.png")).error().code, ErrorCode::bad_input);
}

/// Damage in the tower's file: a text-only run doesn't meet it, the first image does.
TEST(VisionPackage, IsCheckedAtTheFirstImage) {
  const TemporaryFolder folder;
  const std::string package = package_of_tiny(folder);
  {
    std::fstream file(package + "/vision.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1000, std::ios::end);
    file.put('\x5A');
    file.put('\x5A');
  }
  const auto model = Model::open(package, {2, true, {}});
  ASSERT_TRUE(model) << model.error().message;
  const auto session = open_session(*model, {});
  EXPECT_TRUE(session->forward_last(std::vector<int32_t>{1, 2, 3}));
  const auto encoder = VisionEncoder::create(*model, {});
  ASSERT_TRUE(encoder);
  const auto image = (*encoder)->encode_file(test_data(evaluation + "images/001.png"));
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().code, ErrorCode::bad_input);
  EXPECT_THAT(image.error().message, HasSubstr("vision.safetensors"));
}

TEST(VisionPackage, NeedsItsFilesWhole) {
  const TemporaryFolder folder;
  const std::string package = package_of_tiny(folder);
  const auto model = Model::open(package, {2, true, {}});
  ASSERT_TRUE(model);
  std::filesystem::remove(package + "/preprocessor_config.json");
  EXPECT_THAT(VisionEncoder::create(*model, {}).error().message,
              HasSubstr("has no preprocessor_config.json"));
  std::ofstream(package + "/preprocessor_config.json") << R"({"patch_size": 14, "merge_size": 2})";
  EXPECT_THAT(VisionEncoder::create(*model, {}).error().message,
              HasSubstr("'patch_size' is 14, config.json says 16"));
  std::filesystem::resize_file(package + "/vision.safetensors", 100);
  EXPECT_EQ(Model::open(package, {2, true, {}}).error().code, ErrorCode::bad_input);
}

/// config.json asks for a block that the checkpoint lacks.
TEST(VisionCheckpoint, NamesAMissingTensor) {
  const TemporaryFolder folder;
  const std::string copy = folder.file("model");
  std::filesystem::copy(test_data("reference/qwen3_5_vl/checkpoint"), copy);
  std::filesystem::permissions(copy + "/config.json", std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  auto config = read_json(copy + "/config.json");
  ASSERT_TRUE(config);
  (*config)["vision_config"]["depth"] = 5;
  std::ofstream(copy + "/config.json") << config->dump();
  const auto model = Model::open(copy, {1, true, {}});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::bad_input);
  EXPECT_THAT(model.error().message, HasSubstr("visual.blocks.4.norm1.weight"));
}

TEST(VisionCheckpoint, AModelWithoutATowerTakesNoImages) {
  const auto model = Model::open(test_data("reference/qwen3/checkpoint"), {1, true, {}});
  ASSERT_TRUE(model);
  EXPECT_EQ((*model)->vision_graph(), nullptr);
  EXPECT_EQ(VisionEncoder::create(*model, {}).error().code, ErrorCode::unsupported);
  const auto image = std::make_shared<ImageFeatures>();
  const std::vector<int32_t> tokens = {1, 2};
  EXPECT_EQ(make_prompt(**model, tokens, {image}).error().code, ErrorCode::unsupported);
  EXPECT_EQ(open_session(*model, {})->forward_last(Prompt{tokens, {image}}).error().code,
            ErrorCode::unsupported);
}

}  // namespace
}  // namespace hexlm
