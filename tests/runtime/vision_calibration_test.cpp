#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quantization/calibrated_export.hpp"
#include "quantization/export.hpp"
#include "runtime/calibration_runner.hpp"
#include "runtime/vision_encoder.hpp"
#include "support/temporary_folder.hpp"
#include "tiny_model.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    error += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += static_cast<double>(a[i]) * a[i];
  }
  return std::sqrt(error / norm);
}

/// Coloured blocks over a gradient; another picture for every `kind`.
Image picture(int side, int kind) {
  Image image;
  image.width = image.height = side;
  image.rgb.resize(static_cast<size_t>(3 * side * side));
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      for (int c = 0; c < 3; ++c) {
        const bool block = (x / (8 + kind) + y / (11 + kind)) % 3 == c;
        const int value = block ? 40 * kind + 60 * c : x * (c + 1) / 2 + y;
        image.rgb[static_cast<size_t>(3 * (y * side + x) + c)] = static_cast<uint8_t>(value % 256);
      }
    }
  }
  return image;
}

std::unique_ptr<VisionEncoder> encoder_of(const std::string& folder) {
  const auto model = Model::open(folder, {2, true, {}});
  EXPECT_TRUE(model) << model.error().message;
  VisionOptions options;
  options.threads = 2;
  options.precision = Precision::high;
  auto encoder = VisionEncoder::create(*model, options);
  EXPECT_TRUE(encoder) << encoder.error().message;
  return encoder ? *std::move(encoder) : nullptr;
}

/// Two images, a sequence that shows one, one that shows both and one that shows none.
CalibrationSet set_for(const Model& model, const PreprocessorConfig& preprocessor) {
  CalibrationSet set;
  const int32_t token = model.config().vision->image_token;
  std::vector<int64_t> cells;
  for (const int kind : {0, 1}) {
    set.images.push_back(*preprocess_image(picture(preprocessor.factor() * (3 + kind), kind), preprocessor));
    cells.push_back(set.images.back().grid.tokens(preprocessor.merge_size));
  }
  set.shown = {{1}, {0, 1}};
  uint32_t state = 1;
  for (size_t i = 0; i < 3; ++i) {
    std::vector<int32_t>& ids = set.sequences.emplace_back();
    const auto text = [&](int count) {
      for (int k = 0; k < count; ++k) {
        ids.push_back(static_cast<int32_t>((state = state * 1664525 + 1013904223) >> 24));
      }
    };
    text(9);
    for (const size_t image : set.images_of(i)) {
      ids.insert(ids.end(), static_cast<size_t>(cells[image]), token);
      text(12);
    }
    text(30);
    set.tokens += static_cast<int64_t>(ids.size());
  }
  return set;
}

class VisionFamily : public testing::TestWithParam<const char*> {};

TEST_P(VisionFamily, IsCalibratedWithImagesInTheText) {
  const TemporaryFolder folder;
  const auto runner = make_calibration_runner(2);
  const std::string checkpoint = test_data(std::string("reference/") + GetParam() + "/checkpoint");
  const auto model = Model::open(checkpoint, {2, true, {}});
  ASSERT_TRUE(model) << model.error().message;
  const auto encoder = encoder_of(checkpoint);
  ASSERT_TRUE(encoder);
  const Image seen = picture(4 * encoder->preprocessor().factor(), 5);
  const auto features = encoder->encode_image(seen);
  ASSERT_TRUE(features);
  for (const Method method : {Method::best, Method::awq}) {
    ExportOptions options;
    options.checkpoint = checkpoint;
    options.package = folder.file(std::string(to_string(method)));
    options.linear = options.vision = *parse_codec("w8g32");
    options.embedding = options.lm_head = *parse_codec("f32");
    options.method = method;
    options.runner = runner.get();
    options.threads = 2;
    options.tool_version = "test";
    options.calibration = set_for(**model, encoder->preprocessor());
    EXPECT_EQ(vision_method_of(options), method);
    const auto plan = plan_export(options);
    ASSERT_TRUE(plan) << plan.error().message;
    const auto result = export_package(options, *plan, nullptr);
    ASSERT_TRUE(result) << result.error().message;
    const auto package = encoder_of(options.package);
    ASSERT_TRUE(package);
    const auto changed = package->encode_image(seen);
    ASSERT_TRUE(changed) << changed.error().message;
    const double distance = relative_distance((*features)->features, (*changed)->features);
    EXPECT_LT(distance, 0.03) << to_string(method);
    EXPECT_GT(distance, 0) << to_string(method);
    for (size_t level = 0; level < (*features)->deepstack.size(); ++level) {
      EXPECT_LT(relative_distance((*features)->deepstack[level], (*changed)->deepstack[level]), 0.03)
          << level;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(References, VisionFamily,
                         testing::Values("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5_vl"));

class TinyTower : public testing::Test {
 protected:
  ExportOptions options_for(const std::string& name, Method vision_method) {
    ExportOptions options;
    options.checkpoint = test_data("models/tiny-vl");
    options.package = folder_.file(name);
    options.linear = *parse_codec("bf16");
    options.embedding = *parse_codec("bf16");
    options.vision = *parse_codec("w3g64");
    options.vision_method = vision_method;
    options.runner = runner_.get();
    options.threads = 2;
    options.tool_version = "test";
    return options;
  }

  Result<double> distance(const ExportOptions& options) {
    HEXLM_ASSIGN(const ExportPlan plan, plan_export(options));
    const auto written = export_package(options, plan, nullptr);
    if (!written) return tl::unexpected<Error>(written.error());
    double sum = 0;
    const auto reference = encoder_of(options.checkpoint);
    const auto package = encoder_of(options.package);
    for (const char* name : {"000.png", "007.png", "021.png"}) {
      const std::string file = test_data(std::string("models/tiny-vl/eval/images/") + name);
      const auto expected = reference->encode_file(file);
      const auto got = package->encode_file(file);
      EXPECT_TRUE(expected && got);
      sum += relative_distance((*expected)->features, (*got)->features);
    }
    return sum / 3;
  }

  TemporaryFolder folder_;
  std::unique_ptr<GraphRunner> runner_ = make_calibration_runner(2);
};

TEST_F(TinyTower, LosesLessWithImages) {
  const auto model = open_tiny_model();
  const auto encoder = encoder_of(test_data("models/tiny-vl"));
  ASSERT_TRUE(model && encoder);
  CalibrationSet set;
  for (int kind = 0; kind < 4; ++kind) {
    set.images.push_back(*preprocess_image(picture(160, kind), encoder->preprocessor()));
  }
  const auto rounded = distance(options_for("rtn", Method::rtn));
  ASSERT_TRUE(rounded) << rounded.error().message;
  for (const Method method : {Method::gptq, Method::best}) {
    ExportOptions options = options_for(std::string(to_string(method)), method);
    options.calibration = set;
    options.save_statistics = options.package + ".statistics";
    const auto calibrated = distance(options);
    ASSERT_TRUE(calibrated) << calibrated.error().message;
    EXPECT_LT(*calibrated, 0.8 * *rounded) << to_string(method);
    ExportOptions again = options_for("again" + std::string(to_string(method)), method);
    again.statistics = options.save_statistics;
    again.calibration = *read_saved_set(again.statistics);
    ASSERT_TRUE(distance(again));
    EXPECT_EQ(read_test_file(options.package + "/vision.safetensors"),
              read_test_file(again.package + "/vision.safetensors"));
  }
}

TEST_F(TinyTower, NeedsImagesForACalibratedMethod) {
  ExportOptions options = options_for("p", Method::gptq);
  options.calibration.emplace();
  options.calibration->sequences.push_back({1, 2, 3, 4});
  const auto refused = distance(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::usage);
  EXPECT_THAT(refused.error().message, HasSubstr("--vision-method gptq needs calibration images"));
  options.vision_method.reset();
  options.method = Method::best;
  EXPECT_EQ(vision_method_of(options), Method::mse);
}

}  // namespace
}  // namespace hexlm
