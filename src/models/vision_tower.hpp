#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "graph/graph.hpp"
#include "models/vision_config.hpp"

namespace hexlm {

/// Where the towers of the common skeleton (spec B.0, B.3) differ.
struct TowerTraits {
  bool patch_bias = false;
  bool rms_norms = false;  ///< in place of layer norms
};

/// The blocks that tower definitions are written with. Node names follow the checkpoint's module names; the
/// parameters of a node are named after it. Values of blocks are [m²V, hidden_size].
class VisionTower {
 public:
  VisionTower(const VisionConfig& config, const TowerTraits& traits);

  /// patch_embed, with the interpolated position table where there is one (spec B.2).
  ValueId embed_patches();
  /// `x` with its merged cells in another order, given by an i32 [V] graph input (spec B.3, windowing).
  ValueId reorder(const std::string& name, ValueId x, const std::string& order);
  /// The graph input i32 [2, m²V] of that name.
  ValueId ranges(const std::string& name);

  /// x += attention(norm1(x)) over `ranges`, then x += mlp(norm2(x)).
  using Mlp = std::function<ValueId(const std::string& prefix, ValueId x)>;
  ValueId block(int64_t index, ValueId x, ValueId ranges, const Mlp& mlp);
  /// second(gelu(first(x))), with the activation of the config.
  ValueId plain_mlp(const std::string& first, const std::string& second, ValueId x);
  /// down(silu(gate(x)) · up(x)), all with bias.
  ValueId gated_mlp(const std::string& prefix, ValueId x);

  /// Names of a merger's modules.
  struct MergerNames {
    std::string norm;
    std::string first;
    std::string second;
    bool norm_after_view = false;  ///< the norm sees a cell's patches as one row
  };
  /// [m²V, C] -> [V, output_size] (spec B.3, "Merger").
  ValueId merge(const MergerNames& names, ValueId x);

  GraphBuilder& graph() { return graph_; }
  const VisionConfig& config() const { return config_; }

 private:
  ValueId linear(const std::string& name, ValueId x, int64_t outputs);
  ValueId norm(const std::string& name, ValueId x);
  ValueId attention(const std::string& prefix, ValueId x, ValueId ranges);

  const VisionConfig& config_;
  TowerTraits traits_;
  GraphBuilder graph_;
  Dim rows_;
  ValueId pixels_;
  ValueId cosine_;
  ValueId sine_;
};

}  // namespace hexlm
