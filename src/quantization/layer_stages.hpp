#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "graph/graph.hpp"
#include "models/vision_config.hpp"

namespace hexlm {

/// The linears of one half of a layer that read one value, in the order in which they are quantized: each
/// stage's inputs depend on the stages before it (spec D.5, "true_sequential").
struct Stage {
  ValueId input;
  std::vector<const Node*> linears;     ///< those to quantize
  std::vector<const Node*> companions;  ///< other linears that read it
  bool only_linears = true;             ///< nothing else reads it
  bool ends_half = false;               ///< its one linear makes what the half adds to the residual stream
};

/// A piece of a layer between two points of the residual stream.
struct Half {
  ValueId from;
  ValueId to;
  std::vector<Stage> stages;
  bool leaves = false;  ///< `to` is an output: what comes next starts at `from` again
};

/// What calibration walks at a time: a mixer and an MLP around residuals, or the end of a vision tower.
struct WalkLayer {
  std::string name;
  std::vector<Half> halves;
  /// Where the next layer starts, when that is not where the last half ends.
  std::optional<ValueId> next;
};

/// Says which weights are to be quantized.
using WantedWeight = std::function<bool(const Parameter&)>;
/// The layers of a text graph. Errors, here and below: unsupported for a graph whose layers are not built of
/// two halves around residuals.
Result<std::vector<WalkLayer>> decoder_layers(const Graph& graph, const WantedWeight& wanted);
/// The blocks and mergers of a vision tower's graph.
Result<std::vector<WalkLayer>> tower_layers(const Graph& graph, const VisionConfig& config,
                                            const WantedWeight& wanted);

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
