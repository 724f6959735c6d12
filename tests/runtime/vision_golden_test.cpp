#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/mapped_file.hpp"
#include "formats/json.hpp"
#include "formats/safetensors.hpp"
#include "runtime/generate.hpp"
#include "runtime/vision_encoder.hpp"
#include "support/test_data.hpp"
#include "vision/image.hpp"

namespace hexlm {
namespace {

/// ‖a − b‖ / ‖b‖
double distance(std::span<const float> got, std::span<const float> expected) {
  EXPECT_EQ(got.size(), expected.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    const double difference = static_cast<double>(got[i]) - expected[i];
    error += difference * difference;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(error / norm);
}

std::vector<int32_t> ids_of(const Json& json) { return json.get<std::vector<int32_t>>(); }

/// One reference checkpoint with what transformers makes of its images, float32.
class VisionGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = test_data("reference/" + GetParam());
    auto facts = read_json(folder_ + "/case.json");
    ASSERT_TRUE(facts) << facts.error().message;
    facts_ = *std::move(facts);
    auto expected = SafetensorsFile::open(folder_ + "/expected.safetensors");
    ASSERT_TRUE(expected) << expected.error().message;
    expected_.emplace(*std::move(expected));
    auto model = Model::open(folder_ + "/checkpoint", {});
    ASSERT_TRUE(model) << model.error().message;
    model_ = *std::move(model);
    ASSERT_EQ(facts_["images"].size(), 3U);
  }

  std::vector<float> tensor(const std::string& name) const { return tensor(*expected_, name); }

  static std::vector<float> tensor(const SafetensorsFile& file, const std::string& name) {
    const TensorView* view = file.find(name);
    EXPECT_NE(view, nullptr) << name;
    if (view == nullptr) return {};
    std::vector<float> values(view->bytes.size() / sizeof(float));
    std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
    return values;
  }

  std::vector<float> stepped_logits(const std::string& image) const {
    const auto file = SafetensorsFile::open(folder_ + "/exact_delta_rule.safetensors");
    EXPECT_TRUE(file) << file.error().message;
    return file ? tensor(*file, image + ".last_logits") : std::vector<float>();
  }

  PreparedImage prepared(const Json& entry) const {
    PreparedImage image;
    const auto grid = entry["grid_thw"].get<std::vector<int64_t>>();
    image.grid = {grid[0], grid[1], grid[2]};
    image.pixel_values = tensor(stem(entry) + ".pixel_values");
    return image;
  }

  static std::string stem(const Json& entry) {
    const auto name = entry["image"].get<std::string>();
    return name.substr(0, name.find('.'));
  }

  std::unique_ptr<VisionEncoder> encoder(int threads = 1, Precision precision = Precision::high) const {
    VisionOptions options;
    options.threads = threads;
    options.precision = precision;
    auto made = VisionEncoder::create(model_, options);
    EXPECT_TRUE(made) << made.error().message;
    return made ? *std::move(made) : nullptr;
  }

  std::unique_ptr<Session> session(int threads = 1, int64_t chunk = 512) const {
    SessionOptions options;
    options.threads = threads;
    options.precision = Precision::high;
    options.context = 256;
    options.chunk = chunk;
    auto made = Session::create(model_, options);
    EXPECT_TRUE(made) << made.error().message;
    return made ? *std::move(made) : nullptr;
  }

  std::string folder_;
  Json facts_;
  std::optional<SafetensorsFile> expected_;
  std::shared_ptr<const Model> model_;
};

TEST_P(VisionGolden, ImageFeaturesOfReferencePixelsAndOfFiles) {
  const auto tower = encoder();
  ASSERT_NE(tower, nullptr);
  for (const Json& entry : facts_["images"]) {
    const std::vector<float> expected = tensor(stem(entry) + ".image_features");
    const auto exact = tower->encode_prepared(prepared(entry));
    ASSERT_TRUE(exact) << exact.error().message;
    EXPECT_EQ((*exact)->tokens, entry["image_tokens"].get<int64_t>());
    const double from_pixels = distance((*exact)->features, expected);
    EXPECT_LE(from_pixels, 1e-5) << stem(entry);
    const auto file = tower->encode_file(folder_ + "/images/" + entry["image"].get<std::string>());
    ASSERT_TRUE(file) << file.error().message;
    const double from_file = distance((*file)->features, expected);
    EXPECT_LE(from_file, 1e-2) << stem(entry);
    RecordProperty(stem(entry),
                   fmt::format("{:.2e} from pixels, {:.2e} from the file", from_pixels, from_file));
  }
}

TEST_P(VisionGolden, LogitsAndGreedyTokens) {
  const auto tower = encoder();
  for (const Json& entry : facts_["images"]) {
    const auto image = tower->encode_prepared(prepared(entry));
    ASSERT_TRUE(image) << image.error().message;
    const Prompt prompt{ids_of(entry["input_ids"]), {*image}};
    const std::vector<float> expected = tensor(stem(entry) + ".last_logits");
    // transformers' chunked delta rule lies up to 3.8e-5 from the rule itself on this ill-conditioned
    // checkpoint. exact_delta_rule.safetensors is what transformers gives for the same pixels when that one
    // function goes step by step in double precision (spec A.4), all else as it is.
    const bool chunked = GetParam() == "qwen3_5_vl";
    const std::vector<float> stepped = chunked ? stepped_logits(stem(entry)) : expected;
    const double limit = chunked ? 4.5e-5 : 2e-5;
    for (const int64_t chunk : {int64_t{512}, int64_t{5}, int64_t{1}}) {
      const auto whole = session(1, chunk);
      std::vector<float> logits;
      const auto status = whole->forward(prompt, 8, [&](int64_t, int64_t, std::span<const float> rows) {
        logits.insert(logits.end(), rows.begin(), rows.end());
        return Status();
      });
      ASSERT_TRUE(status) << status.error().message;
      EXPECT_LE(distance(logits, expected), limit) << stem(entry) << " chunk " << chunk;
      EXPECT_LE(distance(logits, stepped), 2e-5) << stem(entry) << " chunk " << chunk;
    }
    const auto run = session();
    GenerateOptions options;
    options.max_new_tokens = 16;
    options.ignore_eos = true;
    const auto answer = generate(*run, prompt, options);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->token_ids, ids_of(entry["greedy_16"])) << stem(entry);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, VisionGolden,
                         testing::Values("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5_vl"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hexlm
