#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/source_weights.hpp"
#include "graph/graph.hpp"
#include "models/model_config.hpp"
#include "quantization/adapted_weights.hpp"

namespace hexlm {

/// A checkpoint that was found complete: its configuration, the parameters of its graphs, and a weight of the
/// right shape and a float dtype for each of them.
struct ExportSource {
  std::shared_ptr<const SourceWeights> weights;
  ModelConfig config;
  std::vector<Parameter> parameters;
  std::vector<std::string> left_out;  ///< canonical names of tensors that the model has no use for
};

/// Errors: those of open_source_model; bad_input for a missing weight or another
/// shape (file, tensor, both shapes) and for a tokenizer with more ids than the embedding has rows (both
/// numbers); unsupported for another dtype and for a tensor that the architecture does not define.
Result<ExportSource> open_export_source(const std::string& folder,
                                        const std::vector<AdapterChoice>& adapters = {}, bool rotate = false);

}  // namespace hexlm
