#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/checkpoint_weights.hpp"
#include "graph/graph.hpp"
#include "models/model_config.hpp"

namespace hexlm {

/// A checkpoint that was found complete: its configuration, the parameters of its graphs, and a weight of the
/// right shape and a float dtype for each of them.
struct ExportSource {
  std::shared_ptr<CheckpointWeights> weights;
  ModelConfig config;
  std::vector<Parameter> parameters;
  std::vector<std::string> left_out;  ///< canonical names of tensors that the model has no use for
};

/// Errors: those of parse_model_config and CheckpointWeights::open; bad_input for a missing weight or another
/// shape (file, tensor, both shapes) and for a tokenizer with more ids than the embedding has rows (both
/// numbers); unsupported for another dtype and for a tensor that the architecture does not define.
Result<ExportSource> open_export_source(const std::string& folder);

/// The file that a weight of a checkpoint lies in, for messages.
std::string file_of(const CheckpointWeights& weights, const WeightView& weight);

}  // namespace hexlm
