#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <png.h>

#include "vision/decode.hpp"
#include "vision/orientation.hpp"

namespace hexlm {
namespace {

/// Everything a libpng call needs. Trivial on purpose: `longjmp` may skip no destructor, so the functions
/// that call `setjmp` hold nothing else.
struct PngDecoder {
  png_structp png;
  png_infop info;
  const std::byte* next;
  size_t left;
  std::array<char, 200> reason;
};

[[noreturn]] void png_fatal(png_structp png, png_const_charp message) {
  auto* decoder = static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::strncpy(decoder->reason.data(), message, decoder->reason.size() - 1);
  png_longjmp(png, 1);
}

void png_ignore_warning(png_structp, png_const_charp) {}

void png_read_span(png_structp png, png_bytep target, size_t count) {
  auto* decoder = static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (count > decoder->left) png_error(png, "the file is truncated");
  std::memcpy(target, decoder->next, count);
  decoder->next += count;
  decoder->left -= count;
}

/// Reads up to the first pixel data and asks for 8-bit RGB.
bool open_png(PngDecoder* decoder) {
  if (setjmp(png_jmpbuf(decoder->png)) != 0) return false;
  png_structp png = decoder->png;
  png_set_read_fn(png, decoder, png_read_span);
  // Texts and profiles inflate to sizes of their own and say nothing about the pixels we want: only IHDR,
  // PLTE, tRNS, IDAT and IEND are read.
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  // The limit on pixels is ours; libpng's own of a million a side would refuse a long thin picture.
  png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
  png_read_info(png, decoder->info);
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  return true;
}

bool read_png_pixels(PngDecoder* decoder, uint8_t* rgb, size_t stride) {
  if (setjmp(png_jmpbuf(decoder->png)) != 0) return false;
  png_structp png = decoder->png;
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, decoder->info);
  if (png_get_rowbytes(png, decoder->info) != stride) png_error(png, "unexpected row size");
  const png_uint_32 height = png_get_image_height(png, decoder->info);
  for (int pass = 0; pass < passes; ++pass) {
    for (png_uint_32 y = 0; y < height; ++y) png_read_row(png, rgb + y * stride, nullptr);
  }
  png_read_end(png, nullptr);
  return true;
}

/// The orientation of the eXIf chunk, before or after the pixels. libpng has accepted the file by now; the
/// walk still trusts no length.
int png_orientation(std::span<const std::byte> file) {
  size_t at = 8;
  while (file.size() - at >= 12) {
    uint32_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | std::to_integer<uint32_t>(file[at + i]);
    if (length > file.size() - at - 12) return 1;
    if (std::memcmp(file.data() + at + 4, "eXIf", 4) == 0)
      return exif_orientation(file.subspan(at + 8, length));
    at += size_t{12} + length;
  }
  return 1;
}

/// Owns libpng's two structures.
class PngHandle {
 public:
  explicit PngHandle(std::span<const std::byte> file)
      : decoder_{nullptr, nullptr, file.data(), file.size(), {}} {
    decoder_.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder_, png_fatal, png_ignore_warning);
    if (decoder_.png != nullptr) decoder_.info = png_create_info_struct(decoder_.png);
  }
  PngHandle(const PngHandle&) = delete;
  PngHandle& operator=(const PngHandle&) = delete;
  ~PngHandle() { png_destroy_read_struct(&decoder_.png, &decoder_.info, nullptr); }

  PngDecoder* operator->() { return &decoder_; }
  PngDecoder* get() { return &decoder_; }

 private:
  PngDecoder decoder_;
};

}  // namespace

Result<Image> decode_png(std::span<const std::byte> file, const std::string& origin,
                         const DecodeLimits& limits) {
  PngHandle decoder(file);
  if (decoder->info == nullptr) return fail(ErrorCode::limit, origin + ": no memory for the PNG decoder");
  const auto broken = [&] { return tl::unexpected(broken_image(origin, "PNG", decoder->reason.data())); };
  if (!open_png(decoder.get())) return broken();
  HEXLM_ASSIGN(Image image,
               allocate_image(png_get_image_width(decoder->png, decoder->info),
                              png_get_image_height(decoder->png, decoder->info), origin, limits));
  const size_t stride = static_cast<size_t>(image.width) * 3;
  if (!read_png_pixels(decoder.get(), image.rgb.data(), stride)) return broken();
  return apply_orientation(std::move(image), png_orientation(file));
}

}  // namespace hexlm
