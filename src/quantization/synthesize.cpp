#include "quantization/synthesize.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <vector>

#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "formats/json.hpp"
#include "formats/safetensors.hpp"
#include "models/model_config.hpp"
#include "models/tensor_names.hpp"
#include "quantization/random_weights.hpp"
#include "quantization/resources.hpp"

namespace hexlm {
namespace {

/// Elements a thread makes at a time; a multiple of 4 (RandomWeights) and far more work than handing it out.
constexpr int64_t block_elements = int64_t{1} << 18;
constexpr int64_t blocks_per_thread = 4;

struct SyntheticTensor {
  std::string name;  ///< as in the checkpoint
  std::vector<int64_t> shape;
  int64_t elements = 1;
  Distribution distribution;
};

/// `initializer_range`, at the top level or in text_config; transformers' default is 0.02.
Result<double> initializer_range(const ModelConfig& config, const std::string& origin) {
  const auto text = config.source.find("text_config");
  for (const Json* level : {&config.source, text != config.source.end() ? &*text : nullptr}) {
    if (level == nullptr || !level->is_object() || !level->contains("initializer_range")) continue;
    const Json& value = level->at("initializer_range");
    if (!value.is_number() || !(value.get<double>() > 0 && value.get<double>() <= 1)) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: initializer_range: expected a number above 0 and up to 1, got {}", origin,
                              value.dump(-1, ' ', false, Json::error_handler_t::replace)));
    }
    return value.get<double>();
  }
  return 0.02;
}

/// Norm weights lie around the value that leaves their input unscaled; the rest around zero.
std::map<int32_t, Distribution> special_distributions(const Graph& graph, double deviation) {
  std::map<int32_t, Distribution> special;
  for (const Node& node : graph.nodes()) {
    if (const auto* norm = std::get_if<op::RmsNorm>(&node.op)) {
      special[node.parameters[0].index] = {Distribution::Kind::normal, 1.0 - norm->weight_offset, deviation};
    } else if (std::holds_alternative<op::GatedRmsNorm>(node.op)) {
      special[node.parameters[0].index] = {Distribution::Kind::normal, 1, deviation};
    } else if (std::holds_alternative<op::LayerNorm>(node.op)) {
      special[node.parameters[0].index] = {Distribution::Kind::normal, 1, deviation};
    } else if (std::holds_alternative<op::GatedDeltaNet>(node.op)) {
      special[node.parameters[0].index] = {Distribution::Kind::log_uniform, 0, 0};
      special[node.parameters[1].index] = {Distribution::Kind::normal, 1, deviation};
    }
  }
  return special;
}

void list_tensors(const ModelConfig& config, const Graph& graph, double deviation,
                  std::vector<SyntheticTensor>& tensors) {
  const std::map<int32_t, Distribution> special = special_distributions(graph, deviation);
  for (size_t i = 0; i < graph.parameters().size(); ++i) {
    const Parameter& parameter = graph.parameters()[i];
    SyntheticTensor tensor;
    tensor.name = checkpoint_name(config, parameter.name);
    tensor.shape = parameter.shape;
    for (const int64_t dim : parameter.shape) tensor.elements *= dim;
    const auto found = special.find(static_cast<int32_t>(i));
    tensor.distribution =
        found != special.end() ? found->second : Distribution{Distribution::Kind::normal, 0, deviation};
    tensors.push_back(std::move(tensor));
  }
}

/// Consecutive tensors, as many as fit the limit (at least one) in each shard.
std::vector<std::vector<SyntheticTensor>> divide(std::vector<SyntheticTensor> tensors, uint64_t element_bytes,
                                                 uint64_t shard_limit) {
  std::vector<std::vector<SyntheticTensor>> shards(1);
  uint64_t filled = 0;
  for (SyntheticTensor& tensor : tensors) {
    const uint64_t bytes = static_cast<uint64_t>(tensor.elements) * element_bytes;
    if (filled > 0 && filled + bytes > shard_limit) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

/// Makes the tensors' elements batch by batch; while one batch is made, the one before it is written.
class Synthesizer {
 public:
  Synthesizer(const SynthesizeOptions& options, uint64_t total, const ProgressCallback& progress)
      : options_(options),
        width_(static_cast<size_t>(bit_width(options.dtype)) / 8),
        total_(total),
        progress_(progress),
        pool_(options.threads),
        batch_elements_(block_elements * blocks_per_thread * pool_.threads()) {
    for (auto& buffer : buffers_) buffer.resize(static_cast<size_t>(batch_elements_) * width_);
  }

  Status write_shard(const std::string& path, const std::vector<SyntheticTensor>& tensors);

 private:
  Status write_tensor(SafetensorsWriter& writer, const SyntheticTensor& tensor);
  const RandomWeights& weights_of(const Distribution& distribution);

  const SynthesizeOptions& options_;
  size_t width_;
  uint64_t total_;
  uint64_t done_ = 0;
  const ProgressCallback& progress_;
  ThreadPool pool_;
  int64_t batch_elements_;
  std::vector<std::byte> buffers_[2];
  std::map<Distribution, std::unique_ptr<RandomWeights>> weights_;
};

const RandomWeights& Synthesizer::weights_of(const Distribution& distribution) {
  auto& entry = weights_[distribution];
  if (!entry) entry = std::make_unique<RandomWeights>(distribution, options_.dtype);
  return *entry;
}

Status Synthesizer::write_tensor(SafetensorsWriter& writer, const SyntheticTensor& tensor) {
  const RandomWeights& weights = weights_of(tensor.distribution);
  const uint64_t key = tensor_key(options_.seed, tensor.name);
  std::span<const std::byte> ready;
  for (int64_t first = 0, turn = 0; first < tensor.elements || !ready.empty();
       first += batch_elements_, ++turn) {
    const int64_t count = std::clamp<int64_t>(tensor.elements - first, 0, batch_elements_);
    const int64_t blocks = (count + block_elements - 1) / block_elements;
    std::vector<std::byte>& buffer = buffers_[turn % 2];
    Status written;
    pool_.run(1 + blocks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        if (i == 0) {
          written = writer.write(ready);
          continue;
        }
        const int64_t offset = (i - 1) * block_elements;
        weights.fill(key, static_cast<uint64_t>(first + offset),
                     static_cast<uint64_t>(std::min(block_elements, count - offset)),
                     buffer.data() + static_cast<size_t>(offset) * width_);
      }
    });
    HEXLM_TRY(written);
    done_ += ready.size();
    if (progress_ && !progress_(tensor.name, done_, total_)) {
      return fail(ErrorCode::interrupted, fmt::format("synth interrupted at tensor '{}'", tensor.name));
    }
    ready = std::span(buffer).first(static_cast<size_t>(count) * width_);
  }
  return {};
}

Status Synthesizer::write_shard(const std::string& path, const std::vector<SyntheticTensor>& tensors) {
  std::vector<TensorPlan> plan;
  plan.reserve(tensors.size());
  for (const SyntheticTensor& tensor : tensors) plan.push_back({tensor.name, options_.dtype, tensor.shape});
  HEXLM_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, plan, {{"format", "pt"}}, 1));
  for (const SyntheticTensor& tensor : tensors) HEXLM_TRY(write_tensor(writer, tensor));
  return writer.commit();
}

Status write_json(const std::string& path, const Json& json) {
  return write_file_atomically(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string dtype_word(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

/// config.json as given, but with the dtype of the weights, under the key that it used.
Json synthetic_config(const ModelConfig& config, DType dtype) {
  Json json = config.source;
  const auto set_dtype = [&](Json& level, bool required) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (!level.contains(key)) continue;
      level[key] = dtype_word(dtype);
      return;
    }
    if (required) level["dtype"] = dtype_word(dtype);
  };
  set_dtype(json, true);
  if (json.contains("text_config") && json["text_config"].is_object()) set_dtype(json["text_config"], false);
  return json;
}

Json synthetic_generation_config(const ModelConfig& config) {
  Json json = Json::object();
  json["do_sample"] = false;
  if (config.text.bos_token) json["bos_token_id"] = *config.text.bos_token;
  if (!config.text.eos_tokens.empty()) json["eos_token_id"] = config.text.eos_tokens;
  return json;
}

/// What the family's published checkpoints say (spec B.0, B.1.2).
Json synthetic_preprocessor_config(const VisionConfig& vision) {
  const bool table = vision.position_side > 0;
  const Json half = {0.5, 0.5, 0.5};
  Json json = Json::object();
  json["image_processor_type"] = "Qwen2VLImageProcessor";
  json["patch_size"] = vision.patch_size;
  json["temporal_patch_size"] = vision.temporal_patch_size;
  json["merge_size"] = vision.merge_size;
  json["image_mean"] = table ? half : Json({0.48145466, 0.4578275, 0.40821073});
  json["image_std"] = table ? half : Json({0.26862954, 0.26130258, 0.27577711});
  json["size"] = {{"shortest_edge", table ? 65536 : 3136}, {"longest_edge", table ? 16777216 : 12845056}};
  return json;
}

Status write_index(const std::string& folder, const std::vector<std::vector<SyntheticTensor>>& shards,
                   uint64_t bytes) {
  Json map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const SyntheticTensor& tensor : shards[i]) map[tensor.name] = shard_name(i, shards.size());
  }
  return write_json(folder + "/model.safetensors.index.json",
                    {{"metadata", {{"total_size", bytes}}}, {"weight_map", std::move(map)}});
}

Status check_disk(const std::string& output, uint64_t bytes) {
  HEXLM_ASSIGN(const uint64_t free, free_disk_bytes(output));
  if (free >= bytes) return {};
  return fail(ErrorCode::limit,
              fmt::format("{}: the checkpoint takes {}, {} are free on its disk", output, format_bytes(bytes),
                          format_bytes(free)),
              "free disk space or write to another disk");
}

}  // namespace

Result<SynthesizeResult> synthesize(const SynthesizeOptions& options, const ProgressCallback& progress) {
  if (options.dtype != DType::f32 && options.dtype != DType::f16 && options.dtype != DType::bf16) {
    return fail(ErrorCode::usage,
                fmt::format("dtype {}: expected f32, f16 or bf16", to_string(options.dtype)));
  }
  std::error_code ignored;
  const bool folder_given = std::filesystem::is_directory(options.config, ignored);
  const std::string config_path = folder_given ? options.config + "/config.json" : options.config;
  HEXLM_ASSIGN(const Json json, read_json(config_path));
  HEXLM_ASSIGN(ModelConfig config, parse_model_config(json, config_path));
  HEXLM_TRY(resolve_vision(config, true, config_path));
  HEXLM_ASSIGN(const Graph graph, build_text_graph(config));
  HEXLM_ASSIGN(const double deviation, initializer_range(config, config_path));
  const auto width = static_cast<uint64_t>(bit_width(options.dtype)) / 8;
  std::vector<SyntheticTensor> tensors;
  list_tensors(config, graph, deviation, tensors);
  if (config.vision) {
    HEXLM_ASSIGN(const Graph tower, build_vision_graph(config));
    list_tensors(config, tower, deviation, tensors);
  }
  SynthesizeResult result;
  for (const SyntheticTensor& tensor : tensors) result.parameters += tensor.elements;
  result.bytes = static_cast<uint64_t>(result.parameters) * width;
  HEXLM_TRY(check_disk(options.output, result.bytes));

  HEXLM_ASSIGN(AtomicFolder folder,
               AtomicFolder::create(options.output, options.replace, "generation_config.json"));
  const auto shards = divide(std::move(tensors), width, options.shard_bytes);
  Synthesizer synthesizer(options, result.bytes, progress);
  for (size_t i = 0; i < shards.size(); ++i) {
    HEXLM_TRY(synthesizer.write_shard(folder.working_path() + "/" + shard_name(i, shards.size()), shards[i]));
  }
  if (shards.size() > 1) HEXLM_TRY(write_index(folder.working_path(), shards, result.bytes));
  HEXLM_TRY(write_json(folder.working_path() + "/config.json", synthetic_config(config, options.dtype)));
  HEXLM_TRY(
      write_json(folder.working_path() + "/generation_config.json", synthetic_generation_config(config)));
  if (config.vision) {
    HEXLM_TRY(write_json(folder.working_path() + "/preprocessor_config.json",
                         synthetic_preprocessor_config(*config.vision)));
  }
  HEXLM_TRY(folder.commit());
  return result;
}

}  // namespace hexlm
