// layer: vision
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "vision/decode.hpp"

/// Whatever the bytes: the decoder returns, and a picture has the size of its pixels, within the limit.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint64_t max_pixels = 1 << 16;
  const auto image = hexlm::decode_jpeg(std::as_bytes(std::span(data, size)), "fuzz.jpeg", {max_pixels});
  if (!image) return 0;
  if (image->width <= 0 || image->height <= 0) std::abort();
  const uint64_t pixels = static_cast<uint64_t>(image->width) * static_cast<uint64_t>(image->height);
  if (pixels > max_pixels || image->rgb.size() != pixels * 3) std::abort();
  return 0;
}
