#include "vision/decode.hpp"

#include <array>
#include <fmt/format.h>

#include "base/mapped_file.hpp"

namespace hexlm {
namespace {

struct Signature {
  std::string_view name;
  size_t offset;
  std::string_view bytes;
};

using namespace std::string_view_literals;

constexpr std::string_view png_signature = "\x89PNG\r\n\x1a\n";

/// Formats that people do pass, named so that the refusal says more than "unknown".
constexpr std::array foreign_formats = {
    Signature{"GIF", 0, "GIF8"sv},
    Signature{"BMP", 0, "BM"sv},
    Signature{"TIFF", 0, "II*\0"sv},
    Signature{"TIFF", 0, "MM\0*"sv},
    Signature{"AVIF", 4, "ftypavif"sv},
    Signature{"AVIF", 4, "ftypavis"sv},
    Signature{"HEIC", 4, "ftypheic"sv},
    Signature{"HEIC", 4, "ftypheix"sv},
    Signature{"HEIC", 4, "ftyphevc"sv},
    Signature{"HEIF", 4, "ftypmif1"sv},
    Signature{"HEIF", 4, "ftypmsf1"sv},
    Signature{"MP4 video", 4, "ftyp"sv},
    Signature{"JPEG XL", 0, "\xff\x0a"sv},
    Signature{"JPEG XL", 0, "\0\0\0\x0cJXL \r\n\x87\n"sv},
    Signature{"JPEG 2000", 0, "\0\0\0\x0cjP  \r\n\x87\n"sv},
    Signature{"JPEG 2000", 0, "\xff\x4f\xff\x51"sv},
    Signature{"Photoshop", 0, "8BPS"sv},
    Signature{"ICO", 0, "\0\0\1\0"sv},
    Signature{"QOI", 0, "qoif"sv},
    Signature{"PDF", 0, "%PDF-"sv},
    Signature{"SVG or XML", 0, "<?xml"sv},
    Signature{"SVG", 0, "<svg"sv},
    Signature{"PNM", 0, "P3\n"sv},
    Signature{"PNM", 0, "P5\n"sv},
    Signature{"PNM", 0, "P6\n"sv},
    Signature{"JNG or MNG", 1, "NG\r\n\x1a\n"sv},
    Signature{"Git LFS pointer", 0, "version https://git-lfs"sv},
    Signature{"ZIP", 0, "PK\3\4"sv},
};

bool has_signature(std::string_view content, size_t offset, std::string_view bytes) {
  return content.size() >= offset && content.substr(offset, bytes.size()) == bytes;
}

tl::unexpected<Error> refuse_format(std::string_view content, const std::string& origin) {
  const std::string hint = "convert it to JPEG, PNG or WebP";
  for (const Signature& format : foreign_formats) {
    if (has_signature(content, format.offset, format.bytes)) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: expected a JPEG, PNG or WebP image, got {}", origin, format.name), hint);
    }
  }
  return fail(ErrorCode::bad_input,
              fmt::format("{}: expected a JPEG, PNG or WebP image, got an unknown format", origin), hint);
}

}  // namespace

Result<Image> allocate_image(uint64_t width, uint64_t height, const std::string& origin,
                             const DecodeLimits& limits) {
  // Sides of more than 31 bits do not fit an Image, and their product might not fit 64 bits.
  constexpr uint64_t side_limit = 0x7fffffff;
  if (width == 0 || height == 0) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: the image is {}x{} pixels: empty", origin, width, height));
  }
  if (width > side_limit || height > side_limit || width * height > limits.max_pixels) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: the image is {}x{} pixels; the limit is {} pixels", origin, width, height,
                            limits.max_pixels),
                "scale it down first");
  }
  Image image;
  image.width = static_cast<int>(width);
  image.height = static_cast<int>(height);
  image.rgb.resize(width * height * 3);
  return image;
}

Error broken_image(const std::string& origin, std::string_view format, std::string_view reason) {
  return {ErrorCode::bad_input, fmt::format("{}: the {} image is broken: {}", origin, format, reason), {}};
}

Result<Image> decode_image(std::span<const std::byte> file, const std::string& origin,
                           const DecodeLimits& limits) {
  const std::string_view content(reinterpret_cast<const char*>(file.data()), file.size());
  if (content.empty()) return fail(ErrorCode::bad_input, fmt::format("{}: the file is empty", origin));
  if (has_signature(content, 0, "\xff\xd8")) return decode_jpeg(file, origin, limits);
  if (has_signature(content, 0, png_signature)) return decode_png(file, origin, limits);
  if (has_signature(content, 0, "RIFF") && has_signature(content, 8, "WEBP")) {
    return decode_webp(file, origin, limits);
  }
  return refuse_format(content, origin);
}

Result<Image> load_image(const std::string& path, const DecodeLimits& limits) {
  HEXLM_ASSIGN(const MappedFile file, MappedFile::open(path));
  return decode_image(file.bytes(), path, limits);
}

}  // namespace hexlm
