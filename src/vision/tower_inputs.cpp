#include "vision/tower_inputs.hpp"

#include <algorithm>
#include <cmath>

namespace hexlm {
namespace {

/// The places of one frame's patches.
void append_frame(const ImageGrid& grid, int merge_size, std::vector<PatchPlace>& places) {
  const auto rows = static_cast<int32_t>(grid.h);
  const auto columns = static_cast<int32_t>(grid.w);
  for (int32_t top = 0; top < rows; top += merge_size) {
    for (int32_t left = 0; left < columns; left += merge_size) {
      for (int32_t i = 0; i < merge_size * merge_size; ++i) {
        places.push_back({top + i / merge_size, left + i % merge_size});
      }
    }
  }
}

/// Two neighbours in one direction of the position table, and how much of the second.
struct TablePlace {
  int32_t first;
  int32_t second;
  float share;
};

/// Where the `i`-th of `count` patches lies on a table of `side`.
TablePlace table_place(int32_t i, int64_t count, int side) {
  const double place =
      static_cast<double>(i) * (side - 1) / static_cast<double>(std::max<int64_t>(count - 1, 1));
  const auto first = static_cast<int32_t>(place);
  return {first, std::min(first + 1, side - 1), static_cast<float>(place - first)};
}

void append_taps(const PatchPlace& patch, const ImageGrid& grid, int side, PositionTaps& taps) {
  const TablePlace y = table_place(patch.row, grid.h, side);
  const TablePlace x = table_place(patch.column, grid.w, side);
  const std::array index = {y.first * side + x.first, y.first * side + x.second, y.second * side + x.first,
                            y.second * side + x.second};
  const std::array weight = {(1 - y.share) * (1 - x.share), (1 - y.share) * x.share, y.share * (1 - x.share),
                             y.share * x.share};
  for (size_t tap = 0; tap < 4; ++tap) {
    taps.index[tap].push_back(index[tap]);
    taps.weight[tap].push_back(weight[tap]);
  }
}

/// Appends the windows of one frame of `rows` x `columns` cells, the first of which is number `base`.
void append_windows(int32_t rows, int32_t columns, int32_t base, int32_t side, int32_t patches_per_cell,
                    WindowOrder& order) {
  for (int32_t top = 0; top < rows; top += side) {
    for (int32_t left = 0; left < columns; left += side) {
      for (int32_t y = top; y < std::min(top + side, rows); ++y) {
        for (int32_t x = left; x < std::min(left + side, columns); ++x) {
          order.cells.push_back(base + y * columns + x);
        }
      }
      order.segments.push_back(static_cast<int32_t>(order.cells.size()) * patches_per_cell);
    }
  }
}

}  // namespace

std::vector<PatchPlace> patch_places(std::span<const ImageGrid> grids, int merge_size) {
  std::vector<PatchPlace> places;
  for (const ImageGrid& grid : grids) {
    for (int64_t t = 0; t < grid.t; ++t) append_frame(grid, merge_size, places);
  }
  return places;
}

RotaryTable patch_rotary(std::span<const ImageGrid> grids, int merge_size, int head_dim, double theta) {
  const int quarter = head_dim / 4;
  const int half = head_dim / 2;
  std::vector<float> frequencies;
  frequencies.reserve(static_cast<size_t>(quarter));
  for (int i = 0; i < quarter; ++i) {
    // In float from here on, as the reference computes its angles.
    frequencies.push_back(
        1.0F / std::pow(static_cast<float>(theta), static_cast<float>(2 * i) / static_cast<float>(half)));
  }
  RotaryTable table;
  for (const PatchPlace& patch : patch_places(grids, merge_size)) {
    for (const int32_t coordinate : {patch.row, patch.column}) {
      for (const float frequency : frequencies) {
        const float angle = static_cast<float>(coordinate) * frequency;
        table.cosine.push_back(std::cos(angle));
        table.sine.push_back(std::sin(angle));
      }
    }
  }
  return table;
}

PositionTaps position_taps(std::span<const ImageGrid> grids, int merge_size, int side) {
  PositionTaps taps;
  for (const ImageGrid& grid : grids) {
    for (const PatchPlace& patch : patch_places({&grid, 1}, merge_size)) append_taps(patch, grid, side, taps);
  }
  return taps;
}

std::vector<int32_t> frame_segments(std::span<const ImageGrid> grids) {
  std::vector<int32_t> segments = {0};
  for (const ImageGrid& grid : grids) {
    for (int64_t t = 0; t < grid.t; ++t) {
      segments.push_back(segments.back() + static_cast<int32_t>(grid.h * grid.w));
    }
  }
  return segments;
}

WindowOrder window_order(std::span<const ImageGrid> grids, int merge_size, int window_cells) {
  WindowOrder order;
  order.segments.push_back(0);
  int32_t base = 0;
  for (const ImageGrid& grid : grids) {
    const auto rows = static_cast<int32_t>(grid.h / merge_size);
    const auto columns = static_cast<int32_t>(grid.w / merge_size);
    for (int64_t t = 0; t < grid.t; ++t) {
      append_windows(rows, columns, base, window_cells, merge_size * merge_size, order);
      base += rows * columns;
    }
  }
  order.position.resize(order.cells.size());
  for (size_t i = 0; i < order.cells.size(); ++i) {
    order.position[static_cast<size_t>(order.cells[i])] = static_cast<int32_t>(i);
  }
  return order;
}

}  // namespace hexlm
