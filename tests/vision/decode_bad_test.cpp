#include <cstring>
#include <gtest/gtest.h>
#include <random>

#include "support/temporary_folder.hpp"
#include "support/test_data.hpp"
#include "vision/decode.hpp"

namespace hexlm {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string odd_file(const std::string& name) { return read_test_file(test_data("images/odd/" + name)); }

void expect_refused(std::string_view content, const std::string& part) {
  const auto image = decode_image(bytes_of(content), "x");
  ASSERT_FALSE(image) << "decoded although it should be refused: " << part;
  EXPECT_EQ(image.error().code, ErrorCode::bad_input);
  EXPECT_EQ(image.error().message.find('\n'), std::string::npos);
  EXPECT_EQ(image.error().message.find("x: "), 0U);
  EXPECT_NE(image.error().message.find(part), std::string::npos) << image.error().message;
}

/// Cuts `content` at 60 places and at each of its last bytes but `ignorable` ones, which hold no pixel.
void expect_truncation_refused(const std::string& content, size_t ignorable) {
  ASSERT_TRUE(decode_image(bytes_of(content), "x"));
  const size_t last = content.size() - ignorable;
  const size_t step = std::max<size_t>(1, last / 60);
  for (size_t cut = 0; cut <= last - 1; cut += step) {
    SCOPED_TRACE(cut);
    expect_refused(std::string_view(content).substr(0, cut), "");
  }
  for (size_t cut = last - 8; cut < last; ++cut) {
    SCOPED_TRACE(cut);
    expect_refused(std::string_view(content).substr(0, cut), "");
  }
}

TEST(DecodeBad, TruncatedFiles) {
  expect_truncation_refused(odd_file("exif-orientation__Portrait_1.jpg"), 2);
  expect_truncation_refused(odd_file("pillow__exif_gps.jpg"), 2);
  expect_truncation_refused(odd_file("pillow__hopper_orientation_6.webp"), 0);
  expect_truncation_refused(odd_file("image-webp__images__gallery2__2_webp_ll.webp"), 0);
  expect_truncation_refused(odd_file("image-png__pngsuite__basi2c08.png"), 0);
  expect_truncation_refused(odd_file("image-png__pngsuite__basn6a16.png"), 0);
}

TEST(DecodeBad, EmptyAndForeignFiles) {
  expect_refused("", "the file is empty");
  expect_refused("GIF89a", "got GIF");
  expect_refused(std::string_view("\0\0\0 ftypavif", 12), "got AVIF");
  expect_refused("hello, world", "got an unknown format");
  expect_refused("\xff\xd8", "truncated");
  const auto missing = load_image("/nowhere/at/all.png");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::bad_input);
}

TEST(DecodeBad, ContentCountsNotTheName) {
  const TemporaryFolder folder;
  write_test_file(folder.file("photo.png"), odd_file("exif-orientation__Portrait_1.jpg"));
  const auto renamed = load_image(folder.file("photo.png"));
  ASSERT_TRUE(renamed) << renamed.error().message;
  const auto original = load_image(test_data("images/odd/exif-orientation__Portrait_1.jpg"));
  ASSERT_TRUE(original);
  EXPECT_EQ(renamed->rgb, original->rgb);
}

void set_big_endian(std::string& content, size_t at, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    content[at + static_cast<size_t>(i)] = static_cast<char>(value >> (8 * (bytes - 1 - i)));
  }
}

/// The checksum of PNG chunks, over type and data.
uint32_t crc32(std::string_view content) {
  uint32_t crc = 0xffffffff;
  for (const char c : content) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xedb88320U & (0U - (crc & 1U)));
  }
  return ~crc;
}

std::string png_of_size(uint32_t width, uint32_t height) {
  std::string content = odd_file("image-png__pngsuite__basn0g08.png");
  set_big_endian(content, 16, width, 4);
  set_big_endian(content, 20, height, 4);
  set_big_endian(content, 29, crc32(std::string_view(content).substr(12, 17)), 4);
  return content;
}

TEST(DecodeBad, HugeSizesAreRefusedByTheirHeader) {
  expect_refused(png_of_size(30000, 30000), "30000x30000 pixels; the limit is 67108864 pixels");
  expect_refused(png_of_size(0x7fffffff, 0x7fffffff), "2147483647x2147483647 pixels");

  std::string jpeg = odd_file("exif-orientation__Portrait_1.jpg");
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  set_big_endian(jpeg, frame + 5, 30000, 2);
  set_big_endian(jpeg, frame + 7, 30000, 2);
  expect_refused(jpeg, "30000x30000 pixels");

  // The largest lossless WebP: 14 bits a side, less one, behind the signature byte.
  const std::string webp("RIFF\x12\0\0\0WEBPVP8L\x05\0\0\0\x2f\xff\xff\xff\x0f\0", 26);
  expect_refused(webp, "16384x16384 pixels; the limit is 67108864 pixels");
}

TEST(DecodeBad, TheLimitIsTheCallers) {
  const std::string png = odd_file("image-png__pngsuite__basn0g08.png");
  EXPECT_TRUE(decode_image(bytes_of(png), "x", {.max_pixels = 32 * 32}));
  EXPECT_FALSE(decode_image(bytes_of(png), "x", {.max_pixels = 32 * 32 - 1}));
}

/// A refused file costs no memory of its stated size; a decoded one has the size of its pixels.
void expect_sound(std::string_view content) {
  const auto image = decode_image(bytes_of(content), "x", {.max_pixels = 1 << 20});
  if (!image) {
    EXPECT_EQ(image.error().code, ErrorCode::bad_input) << image.error().message;
    EXPECT_EQ(image.error().message.find('\n'), std::string::npos);
  } else {
    EXPECT_EQ(image->rgb.size(), size_t{3} * static_cast<size_t>(image->width * image->height));
  }
}

TEST(DecodeBad, RandomBytesBehindASignature) {
  std::mt19937 random(7);
  for (const std::string_view start :
       {std::string_view("\xff\xd8\xff\xe0"), std::string_view("\x89PNG\r\n\x1a\n"),
        std::string_view("RIFF\x80\0\0\0WEBPVP8 ", 16), std::string_view("")}) {
    for (int i = 0; i < 200; ++i) {
      std::string content(start);
      while (content.size() < 256) content += static_cast<char>(random());
      expect_sound(content);
    }
  }
}

TEST(DecodeBad, FlippedBytes) {
  std::mt19937 random(11);
  for (const char* name :
       {"exif-orientation__Portrait_2.jpg", "image-png__pngsuite__basi3p02.png",
        "pillow__hopper_orientation_6.webp", "jpeg-decoder__tests__reftest__images__partial_progressive.jpg",
        "image-webp__images__gallery2__5_webp_a.webp", "pillow__apng__dispose_op_none.png"}) {
    const std::string content = odd_file(name);
    for (int i = 0; i < 60; ++i) {
      std::string changed = content;
      for (int j = 0; j < 3; ++j)
        changed[random() % std::min<size_t>(content.size(), 2000)] = static_cast<char>(random());
      expect_sound(changed);
    }
  }
}

}  // namespace
}  // namespace hexlm
