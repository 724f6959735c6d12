#include "vision/tower_inputs.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace hexlm {
namespace {

TEST(TowerInputs, PlacesFollowMergedBlocks) {
  const std::vector<ImageGrid> grids = {{1, 2, 4}};
  const std::vector<PatchPlace> expected = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}};
  EXPECT_EQ(patch_places(grids, 2), expected);
  const std::vector<ImageGrid> clip = {{2, 2, 2}, {1, 2, 2}};
  EXPECT_EQ(patch_places(clip, 2).size(), 12U);
  EXPECT_EQ(patch_places(clip, 2)[4], (PatchPlace{0, 0}));
}

TEST(TowerInputs, RotaryTurnsWithRowThenColumn) {
  const std::vector<ImageGrid> grids = {{1, 2, 2}};
  const RotaryTable table = patch_rotary(grids, 2, 8);
  ASSERT_EQ(table.cosine.size(), 4U * 4U);
  // Frequencies 10000^0 and 10000^(-2/4); the third patch is row 1, column 0, the second row 0, column 1.
  const std::array<float, 4> row_sines = {std::sin(1.0F), std::sin(0.01F), 0, 0};
  const std::array<float, 4> column_sines = {0, 0, std::sin(1.0F), std::sin(0.01F)};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(table.sine[2 * 4 + i], row_sines[i], 1e-7F);
    EXPECT_NEAR(table.sine[1 * 4 + i], column_sines[i], 1e-7F);
    EXPECT_EQ(table.cosine[i], 1);
  }
  EXPECT_NEAR(table.cosine[2 * 4], std::cos(1.0F), 1e-7F);
}

TEST(TowerInputs, TapsMeetTheTablesCorners) {
  const std::vector<ImageGrid> grids = {{1, 4, 6}};
  const PositionTaps taps = position_taps(grids, 2, 48);
  const std::vector<PatchPlace> places = patch_places(grids, 2);
  ASSERT_EQ(taps.index[0].size(), places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    // The taps' weighted mean is the place on the table, whatever the way it is split.
    double y = 0;
    double x = 0;
    double sum = 0;
    for (size_t tap = 0; tap < 4; ++tap) {
      const int32_t index = taps.index[tap][i];
      const double weight = taps.weight[tap][i];
      ASSERT_GE(index, 0);
      ASSERT_LT(index, 48 * 48);
      y += weight * (index / 48);
      x += weight * (index % 48);
      sum += weight;
    }
    EXPECT_NEAR(sum, 1, 1e-6);
    EXPECT_NEAR(y, places[i].row * 47.0 / 3, 1e-4);
    EXPECT_NEAR(x, places[i].column * 47.0 / 5, 1e-4);
  }
  EXPECT_EQ(taps.index[0].front(), 0);
  EXPECT_EQ(taps.weight[0].front(), 1);
  EXPECT_EQ(taps.index[0].back(), 48 * 48 - 1);
  EXPECT_EQ(taps.weight[0].back(), 1);
  // 47/5 = 9.4: patch (0, 1) mixes table columns 9 and 10.
  EXPECT_EQ(taps.index[0][1], 9);
  EXPECT_EQ(taps.index[1][1], 10);
  EXPECT_NEAR(taps.weight[1][1], 0.4, 1e-6);
}

TEST(TowerInputs, TapsOfATableAsLargeAsTheImageCopyIt) {
  const std::vector<ImageGrid> grids = {{1, 4, 4}};
  const PositionTaps taps = position_taps(grids, 2, 4);
  const std::vector<PatchPlace> places = patch_places(grids, 2);
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(taps.index[0][i], places[i].row * 4 + places[i].column);
    EXPECT_EQ(taps.weight[0][i], 1);
  }
}

TEST(TowerInputs, SegmentsEndEachFrame) {
  const std::vector<ImageGrid> grids = {{1, 6, 10}, {2, 4, 4}};
  EXPECT_EQ(frame_segments(grids), (std::vector<int32_t>{0, 60, 76, 92}));
}

TEST(TowerInputs, WindowsCutEdges) {
  const std::vector<ImageGrid> grids = {{1, 6, 10}};
  const WindowOrder order = window_order(grids, 2, 4);
  EXPECT_EQ(order.cells, (std::vector<int32_t>{0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 4, 9, 14}));
  EXPECT_EQ(order.segments, (std::vector<int32_t>{0, 48, 60}));
}

TEST(TowerInputs, WindowsOfSeveralImagesAndFrames) {
  const std::vector<ImageGrid> grids = {{2, 4, 8}, {1, 16, 16}};
  const WindowOrder order = window_order(grids, 2, 2);
  const std::vector<int32_t> start = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 16, 17, 24, 25};
  EXPECT_EQ(std::vector<int32_t>(order.cells.begin(), order.cells.begin() + 20), start);
  ASSERT_EQ(order.cells.size(), 16U + 64U);
  EXPECT_EQ(order.segments.size(), 1U + 4U + 16U);
  EXPECT_EQ(order.segments.back(), 80 * 4);
  for (size_t cell = 0; cell < order.cells.size(); ++cell) {
    EXPECT_EQ(order.cells[static_cast<size_t>(order.position[cell])], static_cast<int32_t>(cell));
  }
}

}  // namespace
}  // namespace hexlm
