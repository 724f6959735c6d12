#include "vision/resize.hpp"

#include <gtest/gtest.h>

#include "formats/json.hpp"
#include "support/test_data.hpp"
#include "vision/fnv.hpp"

namespace hexlm {
namespace {

/// The pictures of the golden file: noise, hard edges or ramps, from a linear congruential generator.
Image golden_picture(int width, int height, uint32_t seed, const std::string& kind) {
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int channel = 0; channel < 3; ++channel) {
        seed = seed * 1664525 + 1013904223;
        int value = static_cast<int>(seed >> 24);
        if (kind == "edges") value = 255 * ((x / 3 + y / 5 + channel) & 1);
        if (kind == "ramp") value = x * 5 + y * 3 + channel * 40 + static_cast<int>((seed >> 24) & 7);
        image.rgb.push_back(static_cast<uint8_t>(value));
      }
    }
  }
  return image;
}

std::string first_bytes(const Image& image) {
  std::string digits;
  for (size_t i = 0; i < std::min<size_t>(96, image.rgb.size()); ++i)
    digits += fmt::format("{:02x}", image.rgb[i]);
  return digits;
}

/// resize_goldens.json holds what Pillow 9.4 makes of each picture.
TEST(Resize, IsByteExactToPillow) {
  const auto goldens = read_json(test_data("images/resize_goldens.json"));
  ASSERT_TRUE(goldens) << goldens.error().message;
  ASSERT_EQ(goldens->size(), 60U);
  for (const Json& golden : *goldens) {
    SCOPED_TRACE(golden.dump());
    const Image picture = golden_picture(golden["width"].get<int>(), golden["height"].get<int>(),
                                         golden["seed"].get<uint32_t>(), golden["kind"].get<std::string>());
    const Image resized =
        resize_bicubic(picture, golden["out_width"].get<int>(), golden["out_height"].get<int>());
    EXPECT_EQ(first_bytes(resized), golden["rgb"].get<std::string>());
    EXPECT_EQ(fnv1a(resized.rgb), golden["fnv1a"].get<std::string>());
  }
}

}  // namespace
}  // namespace hexlm
