#include "vision/tower_feed.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace hexlm {
namespace {

/// begin and end of each row's segment, from the segments' ends.
std::vector<int32_t> row_ranges(const std::vector<int32_t>& ends) {
  const size_t rows = ends.empty() ? 0 : static_cast<size_t>(ends.back());
  std::vector<int32_t> ranges(2 * rows);
  int32_t begin = 0;
  for (const int32_t end : ends) {
    std::fill(ranges.begin() + begin, ranges.begin() + end, begin);
    std::fill(ranges.begin() + static_cast<std::ptrdiff_t>(rows) + begin,
              ranges.begin() + static_cast<std::ptrdiff_t>(rows) + end, end);
    begin = end;
  }
  return ranges;
}

/// Rows of `width` floats, in groups of `group`, as `order` lists the groups.
std::vector<float> reorder(const std::vector<float>& rows, int64_t width, int64_t group,
                           const std::vector<int32_t>& order) {
  std::vector<float> ordered;
  ordered.reserve(rows.size());
  const int64_t elements = width * group;
  for (const int32_t cell : order) {
    const auto from = rows.begin() + cell * elements;
    ordered.insert(ordered.end(), from, from + elements);
  }
  return ordered;
}

template <class T, size_t N>
std::vector<T> concatenate(const std::array<std::vector<T>, N>& parts) {
  std::vector<T> all;
  for (const std::vector<T>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

TowerFeed::TowerFeed(const TowerShape& shape, const ImageGrid& image) {
  const std::vector<ImageGrid> grids = {image};
  rotary_ = patch_rotary(grids, shape.merge_size, shape.head_dim, shape.rope_theta);
  frame_ranges_ = row_ranges(frame_segments(grids));
  if (shape.position_side > 0) {
    const PositionTaps taps = position_taps(grids, shape.merge_size, shape.position_side);
    tap_index_ = concatenate(taps.index);
    tap_weight_ = concatenate(taps.weight);
  }
  if (shape.window_cells > 0) {
    windows_ = window_order(grids, shape.merge_size, shape.window_cells);
    window_ranges_ = row_ranges(windows_.segments);
    const int64_t half = shape.head_dim / 2;
    const int64_t patches = int64_t{shape.merge_size} * shape.merge_size;
    rotary_.cosine = reorder(rotary_.cosine, half, patches, windows_.cells);
    rotary_.sine = reorder(rotary_.sine, half, patches, windows_.cells);
  }
}

const void* TowerFeed::find(std::string_view name, const PreparedImage& image) const {
  if (name == "pixel_values") return image.pixel_values.data();
  if (name == "cosine") return rotary_.cosine.data();
  if (name == "sine") return rotary_.sine.data();
  if (name == "frame_ranges") return frame_ranges_.data();
  if (name == "window_ranges") return window_ranges_.data();
  if (name == "window_cells") return windows_.cells.data();
  if (name == "cell_positions") return windows_.position.data();
  if (name == "tap_index") return tap_index_.data();
  if (name == "tap_weight") return tap_weight_.data();
  return nullptr;
}

}  // namespace hexlm
