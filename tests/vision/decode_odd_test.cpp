#include <array>
#include <gtest/gtest.h>

#include "formats/json.hpp"
#include "support/test_data.hpp"
#include "vision/image.hpp"

namespace hexlm {
namespace {

Json odd_manifest() {
  auto manifest = read_json(test_data("images/odd/manifest.json"));
  EXPECT_TRUE(manifest) << (manifest ? "" : manifest.error().message);
  return manifest ? *manifest : Json::array();
}

double channel_mean(const Image& image, size_t channel) {
  double sum = 0;
  for (size_t i = channel; i < image.rgb.size(); i += 3) sum += image.rgb[i];
  return sum / (static_cast<double>(image.width) * image.height);
}

/// The manifest's means come from a viewer that converts CMYK through an ink profile, which moves red by 10
/// levels in the one CMYK file. Models were trained behind Pillow, which uses plain arithmetic: its means
/// count there.
constexpr std::array pillow_cmyk_mean = {71.65, 91.56, 92.64};

double expected_mean(const Json& entry, size_t channel) {
  if (entry["space"] == "cmyk") return pillow_cmyk_mean[channel];
  return entry["mean"][channel].get<double>();
}

TEST(DecodeOdd, EveryFileDecodesAsStatedOrIsRefused) {
  const Json manifest = odd_manifest();
  ASSERT_EQ(manifest.size(), 206U);
  int decoded = 0;
  for (const Json& entry : manifest) {
    const std::string name = entry["path"].get<std::string>();
    SCOPED_TRACE(name);
    const auto image = load_image(test_data("images/odd/" + name));
    if (!image) {
      EXPECT_TRUE(entry.contains("decode_error")) << image.error().message;
      EXPECT_EQ(image.error().code, ErrorCode::bad_input);
      EXPECT_EQ(image.error().message.find('\n'), std::string::npos);
      continue;
    }
    if (!entry.contains("mean")) continue;
    ++decoded;
    int width = entry["w"].get<int>();
    int height = entry["h"].get<int>();
    if (entry.value("orientation", 1) >= 5) std::swap(width, height);
    EXPECT_EQ(image->width, width);
    EXPECT_EQ(image->height, height);
    ASSERT_EQ(image->rgb.size(), size_t{3} * static_cast<size_t>(image->width * image->height));
    for (size_t channel = 0; channel < 3; ++channel) {
      EXPECT_NEAR(channel_mean(*image, channel), expected_mean(entry, channel), 1.5);
    }
  }
  EXPECT_EQ(decoded, 171);
}

}  // namespace
}  // namespace hexlm
