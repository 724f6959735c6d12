#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "graph/graph.hpp"

namespace hexlm {

/// The linears of a decoder layer that read one value, in the order in which they are quantized: each stage's
/// inputs depend on the stages before it (spec D.5, "true_sequential").
struct Stage {
  ValueId input;
  std::vector<const Node*> linears;  ///< those to quantize
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

}  // namespace hexlm
