#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "vision/preprocess.hpp"

namespace hexlm {

/// Replaces each image token of a prompt, one an image, by as many as the image has tokens (spec B.4).
/// Errors: bad_input, naming both numbers, when prompt and `grids` differ in their number of images.
Result<std::vector<int32_t>> expand_image_placeholders(std::span<const int32_t> tokens, int32_t image_token,
                                                       std::span<const ImageGrid> grids, int merge_size);

/// Rotary positions on the axes time, height and width.
struct RopePositions {
  /// ids[axis][token].
  std::array<std::vector<int32_t>, 3> ids;
  /// What to add to a later token's plain index to get its position, on all axes. At most 0 with still
  /// images: an image takes as many positions as its longer side has tokens, not as it has tokens.
  int32_t rope_delta = 0;
};

/// Where a sequence stands in its conversation: both are 0 at its start. A later turn begins at the number of
/// tokens in the cache and at that number plus the last `rope_delta`.
struct RopeStart {
  int32_t index = 0;
  int32_t position = 0;
};

/// The positions of expanded `tokens` whose image tokens are those of `grids` in order (spec B.5). Errors:
/// bad_input, naming both numbers, when the images have more or fewer tokens than the sequence has
/// placeholders, or when text divides an image.
Result<RopePositions> rope_positions(std::span<const int32_t> tokens, int32_t image_token,
                                     std::span<const ImageGrid> grids, int merge_size, RopeStart start = {});

}  // namespace hexlm
