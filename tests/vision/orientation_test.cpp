#include "vision/orientation.hpp"

#include <array>
#include <gtest/gtest.h>
#include <string>

namespace hexlm {
namespace {

/// A TIFF block with one directory entry.
std::string tiff_block(bool big_endian, int tag, int type, int value) {
  const auto number = [big_endian](int n, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(n >> (8 * (big_endian ? bytes - 1 - i : i)));
    return text;
  };
  const int width = type == 3 ? 2 : 4;
  return (big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(1, 2) + number(tag, 2) +
         number(type, 2) + number(1, 4) + number(value, width) + number(0, 4 - width) + number(0, 4);
}

int orientation_of(const std::string& block) { return exif_orientation(std::as_bytes(std::span(block))); }

TEST(Orientation, ReadsBothByteOrdersAndThePrefix) {
  for (const bool big_endian : {false, true}) {
    for (int value = 1; value <= 8; ++value) {
      EXPECT_EQ(orientation_of(tiff_block(big_endian, 0x112, 3, value)), value);
      EXPECT_EQ(orientation_of(tiff_block(big_endian, 0x112, 4, value)), value);
      EXPECT_EQ(orientation_of(std::string("Exif\0\0", 6) + tiff_block(big_endian, 0x112, 3, value)), value);
    }
    EXPECT_EQ(orientation_of(tiff_block(big_endian, 0x112, 3, 9)), 1);
    EXPECT_EQ(orientation_of(tiff_block(big_endian, 0x112, 3, 0)), 1);
    EXPECT_EQ(orientation_of(tiff_block(big_endian, 0x113, 3, 6)), 1);
    EXPECT_EQ(orientation_of(tiff_block(big_endian, 0x112, 2, 6)), 1);
  }
}

TEST(Orientation, EveryTruncationIsUpright) {
  const std::string block = tiff_block(false, 0x112, 3, 6);
  // The directory's entry ends 4 bytes, the next directory's offset, before the block.
  for (size_t size = 0; size < block.size() - 4; ++size) EXPECT_EQ(orientation_of(block.substr(0, size)), 1);
}

/// The first channel of a 2 x 3 picture with the pixels 1 2 / 3 4 / 5 6, as digits row by row.
std::string turned(int orientation) {
  Image image{2, 3, {}};
  for (uint8_t pixel = 1; pixel <= 6; ++pixel) image.rgb.insert(image.rgb.end(), {pixel, 0, 0});
  const Image upright = apply_orientation(image, orientation);
  std::string digits = std::to_string(upright.width) + "x" + std::to_string(upright.height) + " ";
  for (size_t i = 0; i < upright.rgb.size(); i += 3) digits += static_cast<char>('0' + upright.rgb[i]);
  return digits;
}

TEST(Orientation, TurnsAsExifSays) {
  EXPECT_EQ(turned(1), "2x3 123456");
  EXPECT_EQ(turned(2), "2x3 214365");
  EXPECT_EQ(turned(3), "2x3 654321");
  EXPECT_EQ(turned(4), "2x3 563412");
  EXPECT_EQ(turned(5), "3x2 135246");
  EXPECT_EQ(turned(6), "3x2 531642");
  EXPECT_EQ(turned(7), "3x2 642531");
  EXPECT_EQ(turned(8), "3x2 246135");
}

}  // namespace
}  // namespace hexlm
