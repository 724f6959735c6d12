#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "models/registry.hpp"
#include "models/vision_tower.hpp"

namespace hexlm {

/// Qwen3-VL and Qwen3.5: a learned position table, attention over each frame; Qwen3-VL also hands the outputs
/// of some blocks to the first decoder layers.
Result<Graph> build_qwen3_vl_tower(const VisionConfig& config) {
  VisionTower tower(config, {.patch_bias = true});
  const ValueId frames = tower.ranges("frame_ranges");
  ValueId x = tower.embed_patches();
  std::vector<ValueId> levels;
  for (int64_t index = 0; index < config.depth; ++index) {
    x = tower.block(index, x, frames, [&](const std::string& prefix, ValueId hidden) {
      return tower.plain_mlp(prefix + "linear_fc1", prefix + "linear_fc2", hidden);
    });
    const auto& blocks = config.deepstack_blocks;
    if (std::find(blocks.begin(), blocks.end(), index) == blocks.end()) continue;
    const std::string prefix = fmt::format("visual.deepstack_merger_list.{}.", levels.size());
    levels.push_back(tower.merge({prefix + "norm", prefix + "linear_fc1", prefix + "linear_fc2", true}, x));
  }
  const std::string merger = "visual.merger.";
  tower.graph().output(tower.merge({merger + "norm", merger + "linear_fc1", merger + "linear_fc2"}, x));
  for (const ValueId level : levels) tower.graph().output(level);
  return std::move(tower.graph()).build();
}

}  // namespace hexlm
