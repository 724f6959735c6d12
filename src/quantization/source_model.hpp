#pragma once

#include <map>
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
  bool imported = false;  ///< from weights that another program quantized
  /// Of a GGUF file, which holds them itself: "tokenizer.json", "chat_template.jinja", … to content.
  std::map<std::string, std::string> files;
};

/// Opens a Hugging Face checkpoint folder, float or quantized (ImportedWeights), or a .gguf file, and merges
/// `adapters` into it; with `rotate` its residual stream is turned (RotatedWeights). Errors: those of
/// parse_model_config, CheckpointWeights::open, ImportedWeights::create, GgufWeights::create,
/// gguf_companions, AdaptedWeights::create and RotatedWeights::create.
Result<SourceModel> open_source_model(const std::string& path, const std::vector<AdapterChoice>& adapters,
                                      bool rotate = false);

}  // namespace hexlm
