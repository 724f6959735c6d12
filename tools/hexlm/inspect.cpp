#include <fmt/format.h>
#include <map>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "formats/prepacked.hpp"
#include "graph/graph.hpp"
#include "hexlm/common.hpp"
#include "hexlm/verbs.hpp"

namespace hexlm::tool {
namespace {

/// What a session with a context of that many tokens keeps, apart from the program itself.
struct Forecast {
  int64_t context = 0;
  uint64_t weights = 0;
  /// Bytes of keys and values that one more token takes, by CacheType.
  std::map<CacheType, uint64_t> token_bytes;
  uint64_t recurrent = 0;  ///< convolution inputs and delta-net states, float at every precision

  uint64_t cache(CacheType type) const { return token_bytes.at(type) * static_cast<uint64_t>(context); }
  uint64_t cache(Precision precision) const { return cache(default_cache(precision)); }
  uint64_t total(Precision precision) const { return weights + cache(precision) + recurrent; }
};

uint64_t product(const std::vector<int64_t>& dims) {
  uint64_t count = 1;
  for (const int64_t dim : dims) count *= static_cast<uint64_t>(dim);
  return count;
}

Forecast forecast(const Model& model, int64_t context) {
  Forecast result;
  result.context = context;
  result.weights = model.weight_bytes() - model.vision_weight_bytes();
  for (const CacheType type : cache_types) result.token_bytes[type] = 0;
  for (const State& state : model.graph()->states()) {
    if (state.kind != State::Kind::key_value_cache) {
      result.recurrent += product(state.dims) * sizeof(float);
      continue;
    }
    for (const CacheType type : cache_types) {
      const int64_t keys = state.dims[0] * head_bytes(type, state.dims[1]);
      result.token_bytes[type] += 2 * static_cast<uint64_t>(keys);  // and values
    }
  }
  return result;
}

Json to_json(const Forecast& forecast) {
  Json json = {{"context", forecast.context},
               {"weights_bytes", forecast.weights},
               {"recurrent_state_bytes", forecast.recurrent}};
  for (const Precision precision : {Precision::low, Precision::normal, Precision::high}) {
    json["cache_bytes"][to_string(precision)] = forecast.cache(precision);
    json["total_bytes"][to_string(precision)] = forecast.total(precision);
  }
  for (const CacheType type : cache_types) {
    json["kv_cache"][to_string(type)] = {{"bytes_per_token", forecast.token_bytes.at(type)},
                                         {"bytes", forecast.cache(type)}};
  }
  return json;
}

/// "16384 bytes a token, 512.0 MB for 32768 tokens"
std::string cache_text(const Forecast& forecast, CacheType type) {
  return fmt::format("{} bytes a token, {} for {} tokens", forecast.token_bytes.at(type),
                     format_bytes(forecast.cache(type)), forecast.context);
}

Status add_tensors(const Model& model, const Graph& graph, Report& report, Json& tensors) {
  for (const Parameter& parameter : graph.parameters()) {
    HEXLM_ASSIGN(const Model::StoredForm form, model.stored_form(parameter));
    tensors.push_back({{"name", parameter.name},
                       {"shape", parameter.shape},
                       {"role", to_string(parameter.role)},
                       {"codec", to_string(form.codec)},
                       {"bytes", form.bytes}});
    report.table.rows.push_back({parameter.name, format_shape(parameter.shape),
                                 std::string(to_string(parameter.role)), to_string(form.codec),
                                 std::to_string(form.bytes)});
  }
  return {};
}

Json nodes_json(const Graph& graph) {
  Json nodes = Json::array();
  for (const Node& node : graph.nodes()) {
    Json inputs = Json::array();
    for (const ValueId id : node.inputs) inputs.push_back(graph.value(id).name);
    Json parameters = Json::array();
    for (const ParameterId id : node.parameters) parameters.push_back(graph.parameter(id).name);
    nodes.push_back({{"name", node.name},
                     {"op", op_name(node.op)},
                     {"inputs", std::move(inputs)},
                     {"parameters", std::move(parameters)},
                     {"shape", to_string(graph.value(node.output).shape)}});
  }
  return nodes;
}

/// Which checksums were compared when the model was opened; null for a checkpoint, which has none.
Json integrity_json(const Model& model) {
  if (!model.is_package()) return {};
  const Manifest& manifest = model.package()->manifest();
  Json files = Json::array();
  for (const PackageFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"checksum", to_hex(file.checksum)}});
  }
  const Prepacked* prepacked = model.package()->prepacked();
  Json packed;
  if (prepacked != nullptr) {
    const PrepackedManifest& made = prepacked->manifest();
    packed = {{"target", made.target},
              {"layout", made.layout},
              {"tensors", made.tensors.size()},
              {"bytes", made.file.bytes}};
  }
  return {{"verified", model.package()->verified()},
          {"tensors", manifest.tensors.size()},
          {"files", std::move(files)},
          {"prepacked", std::move(packed)}};
}

std::string integrity_text(const Model& model) {
  if (!model.is_package()) return "none (a checkpoint)";
  if (!model.package()->verified()) return "not compared (--no-verify)";
  const Manifest& manifest = model.package()->manifest();
  return fmt::format("match: manifest, {} files, {} tensors", manifest.files.size(), manifest.tensors.size());
}

std::string summary_of(const Model& model, const Forecast& memory) {
  const TextConfig& text = model.config().text;
  std::string lines;
  const auto add = [&lines](std::string_view key, const std::string& value) {
    lines += fmt::format("{:<16}{}\n", key, value);
  };
  add("model", model.folder());
  add("kind", model.is_package() ? "package" : "checkpoint");
  add("architecture", fmt::format("{} ({} layers, hidden {}, vocabulary {})", model.config().model_type,
                                  text.layers, text.hidden_size, text.vocabulary_size));
  add("parameters", std::to_string(model.parameter_count()));
  add("weights",
      fmt::format("{}, {:.3f} bits per weight", format_bytes(model.weight_bytes()), model.bits_per_weight()));
  if (model.vision_graph() != nullptr) {
    add("vision tower",
        fmt::format("{} blocks of {}, {}, loaded with the first image", model.config().vision->depth,
                    model.config().vision->hidden_size, format_bytes(model.vision_weight_bytes())));
  }
  add("tokenizer", model.tokenizer() == nullptr ? "none" : fmt::format("{} ids", model.tokenizer()->size()));
  add("chat template", model.chat_template() != nullptr ? "yes" : "none");
  add("checksums", integrity_text(model));
  if (model.is_package() && model.package()->prepacked() != nullptr) {
    const PrepackedManifest& made = model.package()->prepacked()->manifest();
    add("prepacked", fmt::format("for {} ({}): {} matrices, {}", made.target, made.layout,
                                 made.tensors.size(), format_bytes(made.file.bytes)));
  }
  add("memory",
      fmt::format("{} for {} tokens: weights {}, cache {} (precision high: {}), recurrent states {}",
                  format_bytes(memory.total(Precision::normal)), memory.context, format_bytes(memory.weights),
                  format_bytes(memory.cache(Precision::normal)), format_bytes(memory.cache(Precision::high)),
                  format_bytes(memory.recurrent)));
  for (const CacheType type : cache_types) {
    add(fmt::format("kv cache {}", to_string(type)), cache_text(memory, type));
  }
  return lines + "\n";
}

}  // namespace

Result<int> run_inspect(Arguments& arguments) {
  HEXLM_ASSIGN(const auto model, open_model(arguments));
  // No image will come to have them checked later.
  if (!arguments.toggle("no-verify")) HEXLM_TRY(model->verify_vision(arguments.threads()));
  if (!arguments.toggle("no-verify") && model->is_package())
    HEXLM_TRY(model->package()->verify_deferred(arguments.threads()));
  const Format format = format_of(arguments);
  if (arguments.toggle("graph") && format == Format::text) {
    print(dump(*model->graph()));
    if (model->vision_graph() != nullptr) print("\n" + dump(*model->vision_graph()));
    return 0;
  }
  const int64_t context = arguments.integer("context");
  const int64_t limit = model->max_context();
  if (context > limit) {
    return fail(ErrorCode::usage,
                fmt::format("--context {} is more than the model's {} positions", context, limit));
  }
  const Forecast memory = forecast(*model, context == 0 ? limit : context);
  Report report;
  report.json = {{"architecture", model->config().model_type},
                 {"kind", model->is_package() ? "package" : "checkpoint"},
                 {"parameters", model->parameter_count()},
                 {"bits_per_weight", model->bits_per_weight()},
                 {"bytes", model->weight_bytes()},
                 {"vision_bytes", model->vision_weight_bytes()},
                 {"memory", to_json(memory)},
                 {"integrity", integrity_json(*model)}};
  report.table.columns = {{"tensor"}, {"shape"}, {"role"}, {"codec"}, {"bytes", true}};
  Json tensors = Json::array();
  HEXLM_TRY(add_tensors(*model, *model->graph(), report, tensors));
  if (model->vision_graph() != nullptr) {
    HEXLM_TRY(add_tensors(*model, *model->vision_graph(), report, tensors));
    report.json["vision_nodes"] = nodes_json(*model->vision_graph());
  }
  report.json["tensors"] = std::move(tensors);
  report.json["nodes"] = nodes_json(*model->graph());
  report.rows_key = arguments.toggle("graph") ? "nodes" : "tensors";
  report.summary = summary_of(*model, memory);
  print(report, format);
  return 0;
}

}  // namespace hexlm::tool
