#include "quantization/export_source.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <set>

#include "base/text.hpp"
#include "formats/gguf.hpp"
#include "formats/json.hpp"
#include "formats/package.hpp"
#include "quantization/source_model.hpp"
#include "tokenizer/tokenizer.hpp"

namespace hexlm {
namespace {

constexpr std::string_view head_name = "lm_head.weight";

Status check_weight(const SourceWeights& weights, const Parameter& parameter) {
  if (!weights.contains(parameter.name)) {
    const std::string stem = parameter.name.substr(0, parameter.name.rfind('.'));
    for (const char* packed : {".qweight", ".weight_packed"}) {
      if (!weights.contains(stem + packed)) continue;
      return fail(ErrorCode::unsupported,
                  fmt::format("{}: '{}{}' is quantized already, but config.json has no quantization_config",
                              weights.origin(), stem, packed),
                  "download config.json again, or export from the float checkpoint that it was made from");
    }
  }
  HEXLM_ASSIGN(const WeightView weight, weights.describe(parameter.name));
  if (weight.shape != parameter.shape) {
    return fail(
        ErrorCode::bad_input,
        fmt::format("{}: tensor '{}' has shape {}, expected {} by config.json", weights.file_of(weight),
                    weight.data.name, format_shape(weight.shape), format_shape(parameter.shape)),
        "config.json and the weights are of different models");
  }
  return {};
}

/// A weight that the definition does not know means that the package would compute something else than the
/// checkpoint does; only what is known to be unused may be left out.
Status find_left_out(ExportSource& source) {
  std::set<std::string, std::less<>> used;
  for (const Parameter& parameter : source.parameters) used.insert(parameter.name);
  for (std::string& name : source.weights->names()) {
    if (used.contains(name)) continue;
    const bool tied_head = source.config.text.tied_embeddings && name == head_name;
    if (!tied_head) {
      return fail(ErrorCode::unsupported,
                  fmt::format("{}: tensor '{}' has no place in a {} model", source.weights->origin(), name,
                              source.config.model_type),
                  "the checkpoint is of another architecture than its config.json says");
    }
    source.left_out.push_back(std::move(name));
  }
  return {};
}

Status check_tokenizer(const std::string& folder, const SourceModel& model) {
  const ModelConfig& config = model.config;
  const std::string path = folder + "/tokenizer.json";
  const auto held = model.files.find("tokenizer.json");
  const bool is_held = held != model.files.end();
  if (!is_held && !std::filesystem::exists(path)) return {};
  HEXLM_ASSIGN(const Tokenizer tokenizer,
               is_held ? Tokenizer::parse(held->second, folder) : Tokenizer::load(path));
  if (tokenizer.size() <= config.text.vocabulary_size) return {};
  return fail(ErrorCode::bad_input,
              fmt::format("{}: has ids up to {}, but the embedding has {} rows", path, tokenizer.size() - 1,
                          config.text.vocabulary_size),
              "the tokenizer is of another model");
}

}  // namespace

Result<ExportSource> open_export_source(const std::string& folder, const std::vector<AdapterChoice>& adapters,
                                        bool rotate) {
  if (Package::is_package(folder)) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: is a package already, expected a Hugging Face checkpoint", folder),
                "export from the checkpoint that it was made from; `run` takes the package as it is");
  }
  ExportSource source;
  HEXLM_ASSIGN(SourceModel model, open_source_model(folder, adapters, rotate));
  const std::string config_path = is_gguf_path(folder) ? folder : folder + "/config.json";
  HEXLM_TRY(resolve_vision(model.config, model.weights->contains(tower_weight), config_path));
  HEXLM_TRY(check_tokenizer(folder, model));
  source.weights = std::move(model.weights);
  source.config = std::move(model.config);
  HEXLM_ASSIGN(const Graph graph, build_text_graph(source.config));
  source.parameters = graph.parameters();
  if (source.config.vision) {
    HEXLM_ASSIGN(const Graph tower, build_vision_graph(source.config));
    source.parameters.insert(source.parameters.end(), tower.parameters().begin(), tower.parameters().end());
  }
  for (const Parameter& parameter : source.parameters) HEXLM_TRY(check_weight(*source.weights, parameter));
  HEXLM_TRY(find_left_out(source));
  return source;
}

}  // namespace hexlm
