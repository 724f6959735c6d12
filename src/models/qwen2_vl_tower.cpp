#include <algorithm>

#include "models/registry.hpp"
#include "models/vision_tower.hpp"

namespace hexlm {
namespace {

ValueId merge_patches(VisionTower& tower, ValueId x) {
  return tower.merge({"visual.merger.ln_q", "visual.merger.mlp.0", "visual.merger.mlp.2"}, x);
}

}  // namespace

/// Attention over each frame, layer norms, quick GELU.
Result<Graph> build_qwen2_vl_tower(const VisionConfig& config) {
  VisionTower tower(config, {});
  const ValueId frames = tower.ranges("frame_ranges");
  ValueId x = tower.embed_patches();
  for (int64_t index = 0; index < config.depth; ++index) {
    x = tower.block(index, x, frames, [&](const std::string& prefix, ValueId hidden) {
      return tower.plain_mlp(prefix + "fc1", prefix + "fc2", hidden);
    });
  }
  tower.graph().output(merge_patches(tower, x));
  return std::move(tower.graph()).build();
}

/// Attention over windows but in a few blocks, RMS norms, gated MLP. Between the patch embedding and the
/// merged features the cells lie window by window.
Result<Graph> build_qwen2_5_vl_tower(const VisionConfig& config) {
  VisionTower tower(config, {.rms_norms = true});
  const ValueId frames = tower.ranges("frame_ranges");
  const ValueId windows = tower.ranges("window_ranges");
  ValueId x = tower.reorder("visual.to_windows", tower.embed_patches(), "window_cells");
  const auto& full = config.full_attention_blocks;
  for (int64_t index = 0; index < config.depth; ++index) {
    const bool whole = std::find(full.begin(), full.end(), index) != full.end();
    x = tower.block(index, x, whole ? frames : windows, [&](const std::string& prefix, ValueId hidden) {
      return tower.gated_mlp(prefix, hidden);
    });
  }
  tower.graph().output(tower.reorder("visual.from_windows", merge_patches(tower, x), "cell_positions"));
  return std::move(tower.graph()).build();
}

}  // namespace hexlm
