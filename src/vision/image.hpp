#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace hexlm {

/// An 8-bit RGB picture, row by row from the top, three bytes a pixel without padding:
/// `rgb.size() == 3 * width * height`.
struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;
};

/// What a file may cost. Checked against the size in its header, before any pixel memory is taken.
struct DecodeLimits {
  /// 64 Mpx (8192 x 8192): above every camera phone's default mode, and the decoder stays below 1 GB: 3 bytes
  /// a pixel for the result, and for a progressive JPEG up to 6 bytes a pixel of coefficients.
  uint64_t max_pixels = uint64_t{64} << 20;
};

/// Decodes a JPEG, PNG or WebP file, told apart by content, to what
/// `ImageOps.exif_transpose(image).convert("RGB")` gives in Pillow (spec B.1.1): alpha and tRNS are dropped
/// without compositing, palettes and grey expanded, CMYK taken as Adobe writes it, the EXIF orientation
/// applied, the first frame of an animation taken. One thing differs: 16-bit grey keeps its high byte, as
/// 16-bit colour does, where Pillow's mode "I" saturates. `origin` names the file in messages. Errors:
/// bad_input for another format (named), a truncated or corrupt file, or more pixels than `limits` allows.
Result<Image> decode_image(std::span<const std::byte> file, const std::string& origin,
                           const DecodeLimits& limits = {});
/// Maps and decodes the file at `path`.
Result<Image> load_image(const std::string& path, const DecodeLimits& limits = {});

}  // namespace hexlm
