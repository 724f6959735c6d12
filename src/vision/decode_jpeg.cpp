#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>  // jpeglib.h uses FILE without including it
#include <jpeglib.h>
#include <memory>

#include "vision/decode.hpp"
#include "vision/orientation.hpp"

namespace hexlm {
namespace {

/// Everything a libjpeg call needs. Trivial on purpose: `longjmp` may skip no destructor, so the functions
/// that call `setjmp` hold nothing else.
struct JpegDecoder {
  jpeg_decompress_struct info;  // first: the callbacks get its address
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf escape;
  std::array<char, JMSG_LENGTH_MAX> reason;
  bool truncated;
};

JpegDecoder* decoder_of(j_common_ptr info) { return static_cast<JpegDecoder*>(info->client_data); }

[[noreturn]] void escape_with(JpegDecoder* decoder) { std::longjmp(decoder->escape, 1); }

[[noreturn]] void jpeg_fatal(j_common_ptr info) {
  JpegDecoder* decoder = decoder_of(info);
  info->err->format_message(info, decoder->reason.data());
  escape_with(decoder);
}

/// Corrupt entropy data is a warning to libjpeg, and to Pillow, which shows the picture with a grey rest.
void jpeg_ignore_message(j_common_ptr, int) {}

/// A tiny progressive file can ask for thousands of passes over the largest picture. Encoders write about ten
/// scans; this allows each of four components' 64 coefficients a few refinements.
constexpr int scan_limit = 500;

void jpeg_limit_scans(j_common_ptr info) {
  JpegDecoder* decoder = decoder_of(info);
  if (decoder->info.input_scan_number <= scan_limit) return;
  std::snprintf(decoder->reason.data(), decoder->reason.size(), "more than %d scans", scan_limit);
  escape_with(decoder);
}

void jpeg_no_op(j_decompress_ptr) {}

/// Past the end of the file: an end marker lets libjpeg stop, and the flag refuses the result.
boolean jpeg_end_of_file(j_decompress_ptr info) {
  static constexpr std::array<JOCTET, 2> end_marker = {0xff, JPEG_EOI};
  decoder_of(reinterpret_cast<j_common_ptr>(info))->truncated = true;
  info->src->next_input_byte = end_marker.data();
  info->src->bytes_in_buffer = end_marker.size();
  return TRUE;
}

void jpeg_skip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  const size_t left = info->src->bytes_in_buffer;
  if (static_cast<size_t>(count) > left) {
    jpeg_end_of_file(info);
    return;
  }
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<size_t>(count);
}

/// Reads the headers and decides on the output: CMYK for four components, RGB for others.
bool open_jpeg(JpegDecoder* decoder, std::span<const std::byte> file) {
  jpeg_decompress_struct& info = decoder->info;
  info.err = jpeg_std_error(&decoder->errors);
  decoder->errors.error_exit = jpeg_fatal;
  decoder->errors.emit_message = jpeg_ignore_message;
  info.client_data = decoder;
  if (setjmp(decoder->escape) != 0) return false;

  jpeg_create_decompress(&info);
  decoder->source.next_input_byte = reinterpret_cast<const JOCTET*>(file.data());
  decoder->source.bytes_in_buffer = file.size();
  decoder->source.init_source = jpeg_no_op;
  decoder->source.fill_input_buffer = jpeg_end_of_file;
  decoder->source.skip_input_data = jpeg_skip;
  decoder->source.resync_to_restart = jpeg_resync_to_restart;
  decoder->source.term_source = jpeg_no_op;
  info.src = &decoder->source;
  decoder->progress.progress_monitor = jpeg_limit_scans;
  info.progress = &decoder->progress;
  jpeg_save_markers(&info, JPEG_APP0 + 1, 0xffff);

  jpeg_read_header(&info, TRUE);
  info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  return true;
}

/// Bytes of one decoded row: three or four a pixel.
size_t jpeg_row_bytes(const JpegDecoder& decoder) {
  return static_cast<size_t>(decoder.info.image_width) * (decoder.info.num_components == 4 ? 4 : 3);
}

/// a * b / 255, rounded, as Pillow computes it.
uint8_t multiply_255(uint32_t a, uint32_t b) {
  const uint32_t product = a * b + 128;
  return static_cast<uint8_t>((product + (product >> 8)) >> 8);
}

/// Pillow takes every four-component JPEG as Adobe's: stored values are inverted, 255 being no ink. In those
/// terms its conversion, clip(255 - k - c * (255 - k) / 255), works on c = 255 - stored.
void cmyk_to_rgb(const uint8_t* stored, int width, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, stored += 4, rgb += 3) {
    const uint32_t white = stored[3];
    for (int c = 0; c < 3; ++c) {
      rgb[c] = static_cast<uint8_t>(white - multiply_255(255U - stored[c], white));
    }
  }
}

/// `row` is scratch for one row; `rgb` the whole picture.
bool read_jpeg_pixels(JpegDecoder* decoder, uint8_t* row, uint8_t* rgb) {
  if (setjmp(decoder->escape) != 0) return false;
  jpeg_decompress_struct& info = decoder->info;
  jpeg_start_decompress(&info);
  const size_t stride = static_cast<size_t>(info.output_width) * 3;
  while (info.output_scanline < info.output_height) {
    uint8_t* out = rgb + info.output_scanline * stride;
    JSAMPROW target = info.num_components == 4 ? row : out;
    jpeg_read_scanlines(&info, &target, 1);
    if (info.num_components == 4) cmyk_to_rgb(row, static_cast<int>(info.output_width), out);
  }
  // Not jpeg_finish_decompress: every pixel is there, and Pillow too asks for no end marker after the last.
  return true;
}

int jpeg_orientation(const JpegDecoder& decoder) {
  for (const jpeg_marker_struct* marker = decoder.info.marker_list; marker != nullptr;
       marker = marker->next) {
    const auto bytes = std::as_bytes(std::span(marker->data, marker->data_length));
    constexpr std::string_view prefix("Exif\0", 5);
    if (bytes.size() >= prefix.size() &&
        std::ranges::equal(bytes.first(prefix.size()), std::as_bytes(std::span(prefix)))) {
      return exif_orientation(bytes);
    }
  }
  return 1;
}

struct DestroyJpeg {
  void operator()(JpegDecoder* decoder) const {
    jpeg_destroy_decompress(&decoder->info);
    delete decoder;
  }
};

}  // namespace

Result<Image> decode_jpeg(std::span<const std::byte> file, const std::string& origin,
                          const DecodeLimits& limits) {
  const std::unique_ptr<JpegDecoder, DestroyJpeg> decoder(new JpegDecoder{});
  const auto broken = [&] {
    const char* reason = decoder->truncated ? "the file is truncated" : decoder->reason.data();
    return tl::unexpected(broken_image(origin, "JPEG", reason));
  };
  if (!open_jpeg(decoder.get(), file)) return broken();
  HEXLM_ASSIGN(Image image,
               allocate_image(decoder->info.image_width, decoder->info.image_height, origin, limits));
  std::vector<uint8_t> row(jpeg_row_bytes(*decoder));
  if (!read_jpeg_pixels(decoder.get(), row.data(), image.rgb.data()) || decoder->truncated) return broken();
  return apply_orientation(std::move(image), jpeg_orientation(*decoder));
}

}  // namespace hexlm
