#include "quantization/source_model.hpp"

#include <optional>
#include <utility>

#include "formats/checkpoint_weights.hpp"
#include "quantization/gguf_source.hpp"
#include "quantization/imported_weights.hpp"
#include "quantization/quantization_scheme.hpp"
#include "quantization/rotated_weights.hpp"

namespace hexlm {

namespace {

/// Reads quantization_config, at the top level or in text_config, and takes it out: what is imported has the
/// configuration of a float checkpoint.
Result<std::optional<QuantizationScheme>> take_scheme(Json& json, const std::string& origin) {
  std::optional<QuantizationScheme> scheme;
  if (!json.is_object()) return scheme;
  const auto text = json.find("text_config");
  Json* const nested = text != json.end() && text->is_object() ? &*text : nullptr;
  for (Json* level : {&json, nested}) {
    if (level == nullptr) continue;
    const auto found = level->find("quantization_config");
    if (found == level->end()) continue;
    if (!scheme && !found->is_null()) {
      HEXLM_ASSIGN(scheme, parse_quantization_scheme(*found, origin));
    }
    level->erase(found);
  }
  return scheme;
}

Result<SourceModel> open_gguf(const std::string& path) {
  SourceModel model;
  HEXLM_ASSIGN(std::shared_ptr<const GgufFile> file, GgufFile::open(path));
  HEXLM_ASSIGN(const Json json, gguf_config(*file));
  HEXLM_ASSIGN(model.config, parse_model_config(json, path));
  HEXLM_ASSIGN(GgufCompanions companions, gguf_companions(*file));
  model.files = std::move(companions.files);
  model.imported = true;
  HEXLM_ASSIGN(model.weights, GgufWeights::create(std::move(file), model.config));
  return model;
}

Result<SourceModel> open_folder(const std::string& path) {
  SourceModel model;
  const std::string config_path = path + "/config.json";
  HEXLM_ASSIGN(Json json, read_json(config_path));
  HEXLM_ASSIGN(const std::optional<QuantizationScheme> scheme, take_scheme(json, config_path));
  HEXLM_ASSIGN(model.config, parse_model_config(json, config_path));
  HEXLM_ASSIGN(std::shared_ptr<CheckpointWeights> stored, CheckpointWeights::open(path));
  if (scheme) {
    model.imported = true;
    HEXLM_ASSIGN(model.weights, ImportedWeights::create(std::move(stored), *scheme));
  } else {
    model.weights = std::move(stored);
  }
  return model;
}

}  // namespace

Result<SourceModel> open_source_model(const std::string& path, const std::vector<AdapterChoice>& adapters,
                                      bool rotate) {
  HEXLM_ASSIGN(SourceModel model, is_gguf_path(path) ? open_gguf(path) : open_folder(path));
  apply_checkpoint_facts(model.config, model.weights->contains("lm_head.weight"));
  HEXLM_ASSIGN(model.weights, apply_adapters(std::move(model.weights), adapters, model.config));
  if (rotate) {
    HEXLM_ASSIGN(model.weights, RotatedWeights::create(std::move(model.weights), model.config));
  }
  return model;
}

}  // namespace hexlm
