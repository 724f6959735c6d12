#include <memory>
#include <webp/decode.h>
#include <webp/demux.h>

#include "vision/decode.hpp"
#include "vision/orientation.hpp"

namespace hexlm {
namespace {

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
struct ReleaseFrame {
  void operator()(WebPIterator* frame) const { WebPDemuxReleaseIterator(frame); }
};
struct ReleaseChunk {
  void operator()(WebPChunkIterator* chunk) const { WebPDemuxReleaseChunkIterator(chunk); }
};

std::string_view name_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "the decoder ran out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "it uses an unsupported feature";
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the file is truncated";
    default:
      return "the bitstream is corrupt";
  }
}

/// Decodes `frame` to its place on the picture. Where an animation's first frame is smaller than its canvas
/// the rest stays transparent black, of which dropping alpha leaves black.
VP8StatusCode draw_frame(const WebPIterator& frame, Image& image) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) return VP8_STATUS_INVALID_PARAM;
  const VP8StatusCode features = WebPGetFeatures(frame.fragment.bytes, frame.fragment.size, &config.input);
  if (features != VP8_STATUS_OK) return features;
  // The container states the frame's place and size, the bitstream its size again: both must agree, and fit.
  if (config.input.width != frame.width || config.input.height != frame.height || frame.x_offset < 0 ||
      frame.y_offset < 0 || frame.width > image.width - frame.x_offset ||
      frame.height > image.height - frame.y_offset) {
    return VP8_STATUS_BITSTREAM_ERROR;
  }
  const size_t stride = static_cast<size_t>(image.width) * 3;
  const size_t offset =
      static_cast<size_t>(frame.y_offset) * stride + static_cast<size_t>(frame.x_offset) * 3;
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = image.rgb.data() + offset;
  config.output.u.RGBA.stride = static_cast<int>(stride);
  config.output.u.RGBA.size = image.rgb.size() - offset;
  return WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
}

int webp_orientation(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk{};
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) == 0) return 1;
  const std::unique_ptr<WebPChunkIterator, ReleaseChunk> release(&chunk);
  return exif_orientation(std::as_bytes(std::span(chunk.chunk.bytes, chunk.chunk.size)));
}

}  // namespace

Result<Image> decode_webp(std::span<const std::byte> file, const std::string& origin,
                          const DecodeLimits& limits) {
  const auto broken = [&](std::string_view reason) {
    return tl::unexpected(broken_image(origin, "WebP", reason));
  };
  const WebPData data{reinterpret_cast<const uint8_t*>(file.data()), file.size()};
  WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
  const std::unique_ptr<WebPDemuxer, DeleteDemuxer> demuxer(WebPDemuxPartial(&data, &state));
  if (demuxer == nullptr || state == WEBP_DEMUX_PARSE_ERROR) return broken("the container is corrupt");
  if (state != WEBP_DEMUX_DONE) return broken("the file is truncated");
  HEXLM_ASSIGN(Image image,
               allocate_image(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                              WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT), origin, limits));

  WebPIterator frame{};
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame) == 0) return broken("it holds no frame");
  const std::unique_ptr<WebPIterator, ReleaseFrame> release(&frame);
  const VP8StatusCode status = draw_frame(frame, image);
  if (status != VP8_STATUS_OK) return broken(name_of(status));
  return apply_orientation(std::move(image), webp_orientation(demuxer.get()));
}

}  // namespace hexlm
