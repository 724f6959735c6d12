#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "graph/graph.hpp"

namespace hexlm {

/// The linears of a decoder layer that read one value, in the order in which they are quantized: each stage's
/// inputs depend on the stages before it (spec D.5, "true_sequential").
struct Stage {
  ValueId input;
  std::vector<const Node*> linears;     ///< those to quantize
  std::vector<const Node*> companions;  ///< other linears that read it
  bool only_linears = true;             ///< nothing else reads it
};

/// A decoder layer as calibration walks it: from its input over the middle residual (mixer added) to its
/// output.
struct LayerStages {
  ValueId input;
  ValueId middle;
  ValueId output;
  std::vector<Stage> mixer;  ///< computed from `input`
  std::vector<Stage> mlp;    ///< computed from `middle`
};

/// `wanted` says which weights are to be quantized. Errors: unsupported for a graph whose layers are not
/// built of a mixer and an MLP around residuals.
Result<LayerStages> find_stages(const Graph& graph, int64_t layer,
                                const std::function<bool(const Parameter&)>& wanted);

/// Where 1 / s goes when the columns of a stage's linears are multiplied by s (spec D.4).
struct FoldTarget {
  std::vector<std::string> divided;  ///< parameters [columns] or [columns, …] to divide row by row
  float offset = 0;                  ///< of a zero-centred norm: (w + offset) / s − offset
};

/// The norm that makes the stage's input, the up projection below silu(gate) · up, or the value projection
/// below attention with a head each; none when the input is something else, or when something else than
/// linears reads it.
std::optional<FoldTarget> find_fold_target(const Graph& graph, const Stage& stage);

}  // namespace hexlm
