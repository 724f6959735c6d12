#include "quantization/source_model.hpp"

#include "formats/checkpoint_weights.hpp"

namespace hexlm {

Result<SourceModel> open_source_model(const std::string& path, const std::vector<AdapterChoice>& adapters) {
  SourceModel model;
  const std::string config_path = path + "/config.json";
  HEXLM_ASSIGN(const Json json, read_json(config_path));
  HEXLM_ASSIGN(model.config, parse_model_config(json, config_path));
  HEXLM_ASSIGN(model.weights, CheckpointWeights::open(path));
  apply_checkpoint_facts(model.config, model.weights->contains("lm_head.weight"));
  HEXLM_ASSIGN(model.weights, apply_adapters(std::move(model.weights), adapters, model.config));
  return model;
}

}  // namespace hexlm
