#include "vision/orientation.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hexlm {
namespace {

/// Reads TIFF integers in the block's byte order; out of range reads give 0, which no valid field needs.
class TiffReader {
 public:
  TiffReader(std::span<const std::byte> bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}

  uint32_t u16(uint64_t offset) const { return read(offset, 2); }
  uint32_t u32(uint64_t offset) const { return read(offset, 4); }

 private:
  uint32_t read(uint64_t offset, uint64_t width) const {
    if (bytes_.size() < width || offset > bytes_.size() - width) return 0;
    uint32_t value = 0;
    for (uint64_t i = 0; i < width; ++i) {
      const uint64_t place = big_endian_ ? offset + i : offset + width - 1 - i;
      value = value << 8 | std::to_integer<uint32_t>(bytes_[place]);
    }
    return value;
  }

  std::span<const std::byte> bytes_;
  bool big_endian_;
};

constexpr uint32_t orientation_tag = 0x0112;
constexpr uint32_t type_short = 3;
constexpr uint32_t type_long = 4;

}  // namespace

int exif_orientation(std::span<const std::byte> exif) {
  constexpr std::string_view prefix("Exif\0\0", 6);
  if (exif.size() >= prefix.size() && std::memcmp(exif.data(), prefix.data(), prefix.size()) == 0) {
    exif = exif.subspan(prefix.size());
  }
  if (exif.size() < 8) return 1;
  const bool big_endian = exif[0] == std::byte{'M'};
  const TiffReader tiff(exif, big_endian);
  const uint32_t byte_order = tiff.u16(0);
  if ((byte_order != 0x4949 && byte_order != 0x4d4d) || tiff.u16(2) != 42) return 1;

  const uint64_t directory = tiff.u32(4);
  const uint32_t entries = tiff.u16(directory);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + i * 12;
    if (entry + 12 > exif.size()) return 1;
    if (tiff.u16(entry) != orientation_tag) continue;
    const uint32_t type = tiff.u16(entry + 2);
    uint32_t value = 1;
    if (type == type_short) value = tiff.u16(entry + 8);
    if (type == type_long) value = tiff.u32(entry + 8);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image apply_orientation(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool transposed = orientation >= 5;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;

  Image upright;
  upright.width = transposed ? image.height : image.width;
  upright.height = transposed ? image.width : image.height;
  upright.rgb.resize(image.rgb.size());
  uint8_t* out = upright.rgb.data();
  for (int y = 0; y < upright.height; ++y) {
    for (int x = 0; x < upright.width; ++x) {
      const int column = transposed ? y : x;
      const int row = transposed ? x : y;
      const size_t source_column = static_cast<size_t>(from_right ? image.width - 1 - column : column);
      const size_t source_row = static_cast<size_t>(from_bottom ? image.height - 1 - row : row);
      const uint8_t* in =
          image.rgb.data() + (source_row * static_cast<size_t>(image.width) + source_column) * 3;
      out = std::copy_n(in, 3, out);
    }
  }
  return upright;
}

}  // namespace hexlm
