#pragma once

#include <cstdint>
#include <vector>

#include "graph/ops.hpp"

namespace hexlm {

/// Everything a vision tower's definition needs, after aliases and defaults (spec B.0).
struct VisionConfig {
  int64_t depth = 0;
  int64_t hidden_size = 0;  ///< of the tower's blocks
  int64_t heads = 0;
  int64_t intermediate_size = 0;
  int64_t output_size = 0;  ///< the language model's hidden size
  int64_t channels = 3;
  int64_t patch_size = 0;
  int64_t temporal_patch_size = 0;
  int64_t merge_size = 0;
  op::Gelu::Kind activation = op::Gelu::Kind::tanh;  ///< of the blocks' MLP, where it is not gated
  double rope_theta = 10000;
  int64_t position_side = 0;                   ///< of the learned position table; 0: the family has none
  int64_t window_cells = 0;                    ///< side of an attention window in merged cells; 0: no windows
  std::vector<int64_t> full_attention_blocks;  ///< of a tower with windows: blocks that attend over the frame
  std::vector<int64_t> deepstack_blocks;       ///< whose outputs go to the first decoder layers, rising
  int32_t image_token = 0;

  int64_t head_dim() const { return hidden_size / heads; }
  int64_t merged_patches() const { return merge_size * merge_size; }
  int64_t patch_elements() const { return channels * temporal_patch_size * patch_size * patch_size; }
};

}  // namespace hexlm
