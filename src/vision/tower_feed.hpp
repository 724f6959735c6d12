#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "vision/preprocess.hpp"
#include "vision/tower_inputs.hpp"

namespace hexlm {

/// What of a vision tower decides how its inputs look; see VisionConfig.
struct TowerShape {
  int merge_size = 2;
  int head_dim = 0;
  double rope_theta = 10000;
  int position_side = 0;  ///< 0: no position table
  int window_cells = 0;   ///< 0: no windows
};

/// The inputs of a tower's graph (build_vision_graph) beside pixels, for one image.
class TowerFeed {
 public:
  TowerFeed(const TowerShape& shape, const ImageGrid& image);
  /// The data of the graph input of that name; `image` has the grid that this was made for. nullptr for a
  /// name that no tower has.
  const void* find(std::string_view name, const PreparedImage& image) const;

 private:
  RotaryTable rotary_;
  std::vector<int32_t> frame_ranges_;
  std::vector<int32_t> window_ranges_;
  std::vector<int32_t> tap_index_;
  std::vector<float> tap_weight_;
  WindowOrder windows_;
};

}  // namespace hexlm
