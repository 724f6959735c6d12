#include "vision/preprocess.hpp"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/json.hpp"
#include "formats/safetensors.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

struct SizeCase {
  ImageSize size;
  ImageSize factor_32;
  int64_t tokens_32;
  ImageSize factor_28;
  int64_t tokens_28;
};

PreprocessorConfig published_config(int patch_size, int64_t min_pixels, int64_t max_pixels) {
  PreprocessorConfig config;
  config.patch_size = patch_size;
  config.min_pixels = min_pixels;
  config.max_pixels = max_pixels;
  return config;
}

int64_t tokens_of(ImageSize size, const PreprocessorConfig& config) {
  return int64_t{size.width} * size.height / (int64_t{config.factor()} * config.factor());
}

/// The vectors of spec B.1.2.
TEST(SmartResize, PublishedConfigs) {
  const PreprocessorConfig newer = published_config(16, 65536, 16777216);
  const PreprocessorConfig older = published_config(14, 3136, 12845056);
  const std::vector<SizeCase> cases = {
      {{640, 480}, {640, 480}, 300, {644, 476}, 391},
      {{1920, 1080}, {1920, 1088}, 2040, {1932, 1092}, 2691},
      {{100, 100}, {256, 256}, 64, {112, 112}, 16},
      {{3000, 33}, {3008, 32}, 94, {2996, 28}, 107},
      {{6000, 4000}, {4992, 3328}, 16224, {4368, 2912}, 16224},
      {{80, 48}, {352, 224}, 77, {84, 56}, 6},
  };
  for (const SizeCase& c : cases) {
    SCOPED_TRACE(c.size.width);
    const auto newer_size = smart_resize(c.size, newer);
    const auto older_size = smart_resize(c.size, older);
    ASSERT_TRUE(newer_size && older_size);
    EXPECT_EQ(*newer_size, c.factor_32);
    EXPECT_EQ(tokens_of(*newer_size, newer), c.tokens_32);
    EXPECT_EQ(*older_size, c.factor_28);
    EXPECT_EQ(tokens_of(*older_size, older), c.tokens_28);
  }
}

TEST(SmartResize, TiesGoToTheEvenMultiple) {
  const PreprocessorConfig config = published_config(16, 1, 16777216);
  // 80 / 32 = 2.5 and 112 / 32 = 3.5.
  EXPECT_EQ(smart_resize({80, 112}, config).value_or(ImageSize{}), (ImageSize{64, 128}));
}

TEST(SmartResize, RefusesExtremeShapes) {
  const PreprocessorConfig config;
  EXPECT_TRUE(smart_resize({2000, 10}, config));
  const auto thin = smart_resize({2001, 10}, config);
  ASSERT_FALSE(thin);
  EXPECT_EQ(thin.error().code, ErrorCode::bad_input);
  EXPECT_EQ(thin.error().message, "the image is 2001x10 pixels; one side may be at most 200 times the other");
  EXPECT_FALSE(smart_resize({0, 0}, config));
}

TEST(LimitPixels, LowersTheMinimumToo) {
  PreprocessorConfig config = published_config(16, 65536, 16777216);
  limit_pixels(config, 262144);
  EXPECT_EQ(config.max_pixels, 262144);
  EXPECT_EQ(config.min_pixels, 65536);
  EXPECT_EQ(smart_resize({4000, 3000}, config).value_or(ImageSize{}), (ImageSize{576, 416}));
  limit_pixels(config, 4096);
  EXPECT_EQ(config.min_pixels, 4096);
  limit_pixels(config, 1 << 30);
  EXPECT_EQ(config.max_pixels, 4096);
}

TEST(Patches, OrderIsBlockThenChannelThenFrame) {
  PreprocessorConfig config = published_config(1, 1, 1000);
  config.resize = false;
  config.mean = {0, 0, 0};
  config.deviation = {1, 1, 1};
  config.rescale_factor = 1;
  Image image{4, 2, {}};
  for (uint8_t i = 0; i < 24; ++i) image.rgb.push_back(i);
  const auto prepared = preprocess_image(image, config);
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_EQ(prepared->grid, (ImageGrid{1, 2, 4}));
  std::vector<float> expected;
  for (const int pixel : {0, 1, 4, 5, 2, 3, 6, 7}) {
    for (int channel = 0; channel < 3; ++channel) {
      expected.insert(expected.end(), 2, static_cast<float>(pixel * 3 + channel));
    }
  }
  EXPECT_EQ(prepared->pixel_values, expected);
  image.width = 3;
  EXPECT_FALSE(preprocess_image(image, config));
}

std::vector<float> float_values(const TensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

class ReferencePixels : public testing::TestWithParam<const char*> {};

TEST_P(ReferencePixels, AgreeWithTransformers) {
  const std::string folder = std::string("reference/") + GetParam();
  const auto config = load_preprocessor_config(test_data(folder + "/checkpoint/preprocessor_config.json"));
  ASSERT_TRUE(config) << config.error().message;
  const auto reference = read_json(test_data(folder + "/case.json"));
  ASSERT_TRUE(reference) << reference.error().message;
  const auto expected = SafetensorsFile::open(test_data(folder + "/expected.safetensors"));
  ASSERT_TRUE(expected) << expected.error().message;
  ASSERT_EQ((*reference)["images"].size(), 3U);
  for (const Json& entry : (*reference)["images"]) {
    const auto name = entry["image"].get<std::string>();
    SCOPED_TRACE(name);
    const auto image = load_image(test_data(folder + "/images/" + name));
    ASSERT_TRUE(image) << image.error().message;
    const auto prepared = preprocess_image(*image, *config);
    ASSERT_TRUE(prepared) << prepared.error().message;
    const auto grid = entry["grid_thw"].get<std::vector<int64_t>>();
    EXPECT_EQ(prepared->grid, (ImageGrid{grid[0], grid[1], grid[2]}));
    EXPECT_EQ(prepared->grid.tokens(config->merge_size), entry["image_tokens"].get<int64_t>());

    const std::string stem = name.substr(0, name.find('.'));
    const TensorView* tensor = expected->find(stem + ".pixel_values");
    ASSERT_NE(tensor, nullptr);
    ASSERT_EQ(tensor->shape, (std::vector<int64_t>{prepared->grid.patches(), config->patch_elements()}));
    const std::vector<float> values = float_values(*tensor);
    ASSERT_EQ(values.size(), prepared->pixel_values.size());
    float greatest = 0;
    size_t close = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const float error = std::abs(values[i] - prepared->pixel_values[i]);
      greatest = std::max(greatest, error);
      close += error <= 1e-3F ? 1 : 0;
    }
    const double share = static_cast<double>(close) / static_cast<double>(values.size());
    fmt::print("{} {}: max abs error {:.2e}, within 1e-3 {:.2f} %\n", GetParam(), name, greatest,
               share * 100);
    EXPECT_LE(greatest, 0.02F);
    EXPECT_GE(share, 0.99);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ReferencePixels,
                         testing::Values("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5_vl"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hexlm
