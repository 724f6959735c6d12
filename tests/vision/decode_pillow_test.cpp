#include <gtest/gtest.h>

#include "formats/json.hpp"
#include "support/test_data.hpp"
#include "vision/fnv.hpp"
#include "vision/image.hpp"

namespace hexlm {
namespace {

/// images/made holds a file for each way of encoding, and the hash of what Pillow 9.4 makes of it:
/// exif_transpose, then convert("RGB"). Both sides decode with the same libraries, so every byte agrees.
TEST(DecodePillow, EveryEncodingIsByteExact) {
  const auto manifest = read_json(test_data("images/made/manifest.json"));
  ASSERT_TRUE(manifest) << manifest.error().message;
  ASSERT_GE(manifest->size(), 43U);
  for (const Json& entry : *manifest) {
    const auto name = entry["path"].get<std::string>();
    SCOPED_TRACE(name);
    const auto image = load_image(test_data("images/made/" + name));
    ASSERT_TRUE(image) << image.error().message;
    EXPECT_EQ(image->width, entry["width"].get<int>());
    EXPECT_EQ(image->height, entry["height"].get<int>());
    EXPECT_EQ(fnv1a(image->rgb), entry["fnv1a"].get<std::string>());
  }
}

}  // namespace
}  // namespace hexlm
