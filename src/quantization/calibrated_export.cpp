#include "quantization/calibrated_export.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <optional>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "quantization/calibrate.hpp"
#include "quantization/resources.hpp"
#include "quantization/statistics_file.hpp"

namespace hexlm {
namespace {

/// Checkpoints are not read whole to tell their versions apart: a few elements of every tensor do.
constexpr size_t identity_bytes = 256;

void add(Hasher& hasher, std::string_view text) { hasher.update(std::as_bytes(std::span(text))); }

/// Of names, shapes and first bytes.
std::string hash_of_model(const ExportPlan& plan, const WeightSource& weights) {
  Hasher hasher;
  for (const ExportTensor& tensor : plan.tensors) {
    add(hasher, fmt::format("{} {}\n", tensor.name, format_shape(tensor.shape)));
    if (const auto view = weights.find(tensor.name)) {
      const auto bytes = view->data.bytes;
      hasher.update(bytes.first(std::min(bytes.size(), identity_bytes)));
      weights.release(*view);
    }
  }
  return to_hex(hasher.digest());
}

std::string hash_of_codecs(const ExportPlan& plan) {
  Hasher hasher;
  for (const ExportTensor& tensor : plan.tensors) {
    if (tensor.role != ParameterRole::linear && tensor.role != ParameterRole::vision) continue;
    add(hasher, fmt::format("{} {}\n", tensor.name, to_string(tensor.codec)));
  }
  return to_hex(hasher.digest());
}

std::string methods_of(const ExportOptions& options) {
  return fmt::format("{} {}", to_string(options.method), to_string(vision_method_of(options)));
}

/// What the finished layers of a work folder depend on.
std::string work_key(const ExportOptions& options, const ExportPlan& plan, const WeightSource& weights) {
  Hasher hasher;
  add(hasher,
      fmt::format("{} {} {} {} {}", options.tool_version, methods_of(options), hash_of_model(plan, weights),
                  hash_of_codecs(plan), to_hex(options.calibration->hash)));
  return to_hex(hasher.digest());
}

/// What saved statistics must have in common with this export. awq measures the float model, whatever it is
/// quantized to.
StatisticsIdentity identity_of(const ExportOptions& options, const ExportPlan& plan,
                               const WeightSource& weights) {
  bool sequential = false;
  for (const Method method : {options.method, vision_method_of(options)}) {
    sequential = sequential || (needs_calibration(method) && method != Method::awq);
  }
  return {hash_of_model(plan, weights), to_hex(options.calibration->hash), methods_of(options),
          sequential ? hash_of_codecs(plan) : ""};
}

struct StatisticsFiles {
  std::optional<StatisticsReader> saved;
  std::optional<StatisticsWriter> saving;
};

Result<StatisticsFiles> open_statistics(const ExportOptions& options, const ExportPlan& plan,
                                        const WeightSource& weights) {
  StatisticsFiles files;
  if (options.statistics.empty() && options.save_statistics.empty()) return files;
  const StatisticsIdentity identity = identity_of(options, plan, weights);
  HEXLM_ASSIGN(std::vector<StageStatistics> stages, planned_statistics(options, plan));
  if (!options.statistics.empty()) {
    HEXLM_ASSIGN(files.saved, StatisticsReader::open(options.statistics));
    HEXLM_TRY(files.saved->check(identity, stages));
    return files;
  }
  HEXLM_ASSIGN(files.saving, StatisticsWriter::create(options.save_statistics, identity,
                                                      to_record(*options.calibration), std::move(stages)));
  return files;
}

Status check_memory(const ExportOptions& options, const ExportPlan& plan) {
  const uint64_t needed = calibration_memory(options, plan);
  const std::optional<uint64_t> memory = available_memory_bytes();
  if (!memory || *memory >= needed) return {};
  return fail(ErrorCode::limit,
              fmt::format("calibration needs about {} of memory, {} are available", format_bytes(needed),
                          format_bytes(*memory)),
              "use fewer --calibration-samples, or --method mse");
}

/// Program, tokenizer and the texts.
constexpr uint64_t calibration_base = uint64_t{96} << 20;

struct LayerSize {
  uint64_t elements = 0;
  uint64_t source_bytes = 0;
};

/// "layers.3", "visual.blocks.2"
std::string layer_of(const std::string& name) {
  const size_t digits = name.find_first_of("0123456789");
  return digits == std::string::npos ? name : name.substr(0, name.find('.', digits));
}

uint64_t flows_of(Method method) { return method == Method::best ? 2 : 1; }

/// Quantized weights as floats, the copies that two prepared graphs make, and the pages of the source.
uint64_t layer_memory(const LayerSize& layer) {
  return 3 * sizeof(float) * layer.elements + layer.source_bytes;
}

/// While a Hessian is factored: H, its ordered copy and the inverse in double, the factor in float; source
/// and target of the matrix.
uint64_t stage_memory(const ExportTensor& tensor) {
  const auto columns = static_cast<uint64_t>(tensor.shape[1]);
  const auto rows = static_cast<uint64_t>(tensor.shape[0]);
  return (3 * sizeof(double) + sizeof(float)) * columns * columns + 3 * sizeof(float) * rows * columns;
}

}  // namespace

Method vision_method_of(const ExportOptions& options) {
  if (options.vision_method) return *options.vision_method;
  const bool images = options.calibration && options.calibration->has_images();
  return needs_calibration(options.method) && !images ? Method::mse : options.method;
}

bool is_calibrated(const ExportOptions& options) {
  return needs_calibration(options.method) || needs_calibration(vision_method_of(options));
}

uint64_t calibration_memory(const ExportOptions& options, const ExportPlan& plan) {
  if (!is_calibrated(options) || !options.calibration) return 0;
  const CalibrationSet& set = *options.calibration;
  std::map<std::string, LayerSize> layers;
  uint64_t stage = 0;
  for (const ExportTensor& tensor : plan.tensors) {
    const bool vision = tensor.role == ParameterRole::vision;
    if (!vision && tensor.role != ParameterRole::linear) continue;
    if (!needs_calibration(vision ? vision_method_of(options) : options.method)) continue;
    LayerSize& layer = layers[layer_of(tensor.name)];
    layer.elements += static_cast<uint64_t>(tensor.shape[0] * tensor.shape[1]);
    layer.source_bytes += tensor.source_bytes;
    stage = std::max(stage, stage_memory(tensor));
  }
  uint64_t layer = 0;
  for (const auto& [name, size] : layers) layer = std::max(layer, layer_memory(size));
  uint64_t values = 0;
  if (options.statistics.empty() && needs_calibration(options.method)) {
    values = flows_of(options.method) * static_cast<uint64_t>(set.tokens * plan.config.text.hidden_size);
  }
  if (options.statistics.empty() && plan.config.vision) {
    for (const PreparedImage& image : set.images) {
      values += image.pixel_values.size();
      values += flows_of(vision_method_of(options)) *
                static_cast<uint64_t>(image.grid.patches() * plan.config.vision->hidden_size);
    }
  }
  return calibration_base + sizeof(float) * values + layer + stage;
}

Result<WorkFolder> calibrate_export(const ExportOptions& options, const ExportPlan& plan,
                                    const std::shared_ptr<const WeightSource>& weights,
                                    const ProgressCallback& progress) {
  if (options.runner == nullptr || !options.calibration) {
    const Method method = needs_calibration(options.method) ? options.method : vision_method_of(options);
    return fail(ErrorCode::usage, fmt::format("the method {} needs calibration text", to_string(method)),
                "give --calibration FILE, or use --method mse");
  }
  if (needs_calibration(vision_method_of(options)) && plan.config.vision &&
      !options.calibration->has_images()) {
    return fail(
        ErrorCode::usage,
        fmt::format("--vision-method {} needs calibration images, the calibration files show none",
                    to_string(vision_method_of(options))),
        "add a .jsonl file with \"messages\" and \"images\" to --calibration; see docs/quantization.md");
  }
  HEXLM_TRY(check_memory(options, plan));
  const std::string path = options.work.empty() ? options.package + ".work" : options.work;
  HEXLM_ASSIGN(WorkFolder work, WorkFolder::open(path, work_key(options, plan, *weights)));
  HEXLM_ASSIGN(StatisticsFiles statistics, open_statistics(options, plan, *weights));
  StatisticsReader* saved = statistics.saved ? &*statistics.saved : nullptr;
  StatisticsWriter* saving = statistics.saving ? &*statistics.saving : nullptr;
  HEXLM_TRY(quantize_layers(options, plan, weights, saved, saving, work, progress));
  if (saving != nullptr) HEXLM_TRY(saving->commit());
  return work;
}

Json to_record(const CalibrationSet& set) {
  if (!set.saved_record.is_null()) return set.saved_record;
  Json shares = Json::array();
  for (const CalibrationShare& share : set.shares) {
    shares.push_back({{"file", share.file}, {"script", to_string(share.script)}, {"samples", share.taken}});
  }
  Json record = {{"samples", set.sequences.size()},
                 {"tokens", set.tokens},
                 {"xxh3", to_hex(set.hash)},
                 {"shares", std::move(shares)},
                 {"warnings", set.warnings}};
  if (!set.images.empty()) record["images"] = set.images.size();
  return record;
}

Result<CalibrationSet> read_saved_set(const std::string& statistics) {
  HEXLM_ASSIGN(const StatisticsReader reader, StatisticsReader::open(statistics));
  CalibrationSet set;
  set.saved_record = reader.record();
  const Json& record = set.saved_record;
  const auto number = [&](const char* key) {
    return record.contains(key) && record[key].is_number_unsigned();
  };
  if (!number("tokens") || !number("samples") || !record.contains("xxh3") || !record["xxh3"].is_string()) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: its record of the calibration set is incomplete", statistics),
                "calibrate again: --calibration FILE --save-statistics FILE");
  }
  set.tokens = record["tokens"].get<int64_t>();
  const std::string digits = record["xxh3"].get<std::string>();
  std::from_chars(digits.data(), digits.data() + digits.size(), set.hash, 16);
  return set;
}

}  // namespace hexlm
