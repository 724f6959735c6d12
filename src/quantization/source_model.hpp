#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/source_weights.hpp"
#include "models/model_config.hpp"
#include "quantization/adapted_weights.hpp"

namespace hexlm {

/// A model that is no package: its configuration, and weights under canonical names.
struct SourceModel {
  std::shared_ptr<const SourceWeights> weights;
  ModelConfig config;
};

/// Opens a Hugging Face checkpoint folder and merges `adapters` into it. Errors: those of parse_model_config,
/// CheckpointWeights::open and AdaptedWeights::create.
Result<SourceModel> open_source_model(const std::string& path, const std::vector<AdapterChoice>& adapters);

}  // namespace hexlm
