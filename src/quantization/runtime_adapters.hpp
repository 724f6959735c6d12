#pragma once

#include <vector>

#include "base/error.hpp"
#include "formats/codec.hpp"
#include "graph/graph.hpp"
#include "graph/low_rank.hpp"
#include "quantization/adapted_weights.hpp"

namespace hexlm {

/// What adapters add to a graph's linears when they are not merged; several adapters on one linear are
/// stacked. `weights` may be quantized: DoRA's norms are of the weights that run. Errors: bad_input for a
/// module that the model does not have or that has another shape; unsupported for what only merging can do
/// (whole parameters, biases, embeddings, experts) and for combinations that AdaptedWeights refuses too.
Result<std::vector<LowRankUpdate>> runtime_updates(const std::vector<AppliedAdapter>& adapters,
                                                   const Graph& graph, const WeightSource& weights);

/// Opens the adapters as well.
Result<std::vector<LowRankUpdate>> open_runtime_updates(const std::vector<AdapterChoice>& choices,
                                                        const Graph& graph, const WeightSource& weights);

}  // namespace hexlm
