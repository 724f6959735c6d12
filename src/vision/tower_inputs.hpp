#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "vision/preprocess.hpp"

namespace hexlm {

// What a vision tower needs besides pixels, all of it a function of the images' grids. Grids come from
// `preprocess_image`: sides are positive multiples of the merge size. Patches are listed as `pixel_values`
// are: images in order, each frame block by merged block.

/// Row and column of each patch on its image's patch grid.
struct PatchPlace {
  int32_t row = 0;
  int32_t column = 0;
  bool operator==(const PatchPlace&) const = default;
};
std::vector<PatchPlace> patch_places(std::span<const ImageGrid> grids, int merge_size);

/// Rotary factors of each patch, [patches, head_dim / 2]: the first quarter of a head turns with the row, the
/// second with the column; the rotation pairs dimension i with i + head_dim / 2 (spec B.2).
struct RotaryTable {
  std::vector<float> cosine;
  std::vector<float> sine;
};
/// `head_dim` is a multiple of 4.
RotaryTable patch_rotary(std::span<const ImageGrid> grids, int merge_size, int head_dim,
                         double theta = 10000);

/// Bilinear reading of a learned `side` x `side` position table, stretched so that its corners meet the
/// image's (spec B.2): the embedding of patch i is the sum over the four taps of weight[tap][i] *
/// table[index[tap][i]].
struct PositionTaps {
  std::array<std::vector<int32_t>, 4> index;
  std::array<std::vector<float>, 4> weight;
};
PositionTaps position_taps(std::span<const ImageGrid> grids, int merge_size, int side);

/// Ends of the attention segments in patches, from 0: one segment for each frame of each image.
std::vector<int32_t> frame_segments(std::span<const ImageGrid> grids);

/// The order in which windowed attention (spec B.3, Qwen2.5-VL) takes the merged cells.
struct WindowOrder {
  /// cells[i] is the merged cell, of all images, that comes i-th; each stands for merge_size² patches.
  std::vector<int32_t> cells;
  /// cells[position[c]] == c: brings the merger's output back into image order.
  std::vector<int32_t> position;
  /// Ends of the windows in patches, from 0. Windows at an image's edge are smaller; none is empty.
  std::vector<int32_t> segments;
};
/// `window_cells` is a window's side in merged cells: window_size / merge_size / patch_size, at least 1.
WindowOrder window_order(std::span<const ImageGrid> grids, int merge_size, int window_cells);

}  // namespace hexlm
