#include "quantization/export.hpp"

#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <map>

#include "base/atomic_file.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "formats/gguf.hpp"
#include "formats/package.hpp"
#include "formats/safetensors.hpp"
#include "quantization/calibrate.hpp"
#include "quantization/calibrated_export.hpp"
#include "quantization/codec_choice.hpp"
#include "quantization/companions.hpp"
#include "quantization/export_source.hpp"
#include "quantization/resources.hpp"
#include "quantization/source_model.hpp"
#include "quantization/tensor_stream.hpp"

namespace hexlm {
namespace {

/// One hash per checkpoint file, over the bytes of its tensors in the order in which they were read: it costs
/// no second pass over gigabytes.
using SourceHashes = std::map<std::string, Hasher, std::less<>>;

std::vector<TensorPlan> file_plan(const ExportPlan& plan, std::string_view file) {
  std::vector<TensorPlan> parts;
  for (const ExportTensor& tensor : plan.tensors) {
    if (tensor.file != file) continue;
    PackageTensor stored;
    stored.name = tensor.name;
    stored.codec = tensor.codec;
    stored.shape = tensor.shape;
    for (TensorPlan& part : tensor_plans(stored)) parts.push_back(std::move(part));
  }
  return parts;
}

/// Writes the tensor files of the package and lists them and their tensors in the manifest.
class FileExport {
 public:
  FileExport(const std::string& folder, const ExportPlan& plan, const SourceWeights& weights,
             const WorkFolder* work, const ExportOptions& options, const ProgressCallback& progress,
             SourceHashes& hashes)
      : folder_(folder),
        plan_(plan),
        weights_(weights),
        work_(work),
        options_(options),
        progress_(progress),
        hashes_(hashes) {
    for (const ExportTensor& tensor : plan.tensors) total_ += tensor.source_bytes;
  }

  Status write(const char* file, ThreadPool& pool, Manifest& manifest) {
    const std::vector<TensorPlan> parts = file_plan(plan_, file);
    if (parts.empty()) return {};
    HEXLM_ASSIGN(
        SafetensorsWriter writer,
        SafetensorsWriter::create(folder_ + "/" + file, parts, {{"format", "hexlm"}}, package_alignment));
    const bool vision = std::string_view(file) == vision_file;
    TensorStream stream(writer, pool, vision ? vision_method_of(options_) : options_.method);
    for (const ExportTensor& tensor : plan_.tensors) {
      if (tensor.file != file) continue;
      HEXLM_ASSIGN(PackageTensor stored, write(stream, tensor));
      stored.file = file;
      manifest.tensors.push_back(std::move(stored));
    }
    HEXLM_TRY(writer.commit());
    manifest.files.push_back({file, writer.file_bytes(), writer.header_checksum()});
    return {};
  }

 private:
  Result<PackageTensor> write(TensorStream& stream, const ExportTensor& tensor) {
    HEXLM_ASSIGN(const WeightView weight, weights_.find(tensor.name));
    const SourceFile file{weights_.mapping(weight), weights_.file_of(weight)};
    if (weight.shape != tensor.shape || weight.stored_bytes() != tensor.source_bytes) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: tensor '{}' has shape {}, {} when the export was planned", file.path,
                              weight.data.name, format_shape(weight.shape), format_shape(tensor.shape)));
    }
    const auto advance = [&](uint64_t bytes) {
      done_ += bytes;
      return !progress_ || progress_(tensor.name, done_, total_);
    };
    Hasher& hash = hashes_[file.path];
    if (tensor.imported) return stream.copy(weight, tensor, hash, advance);
    const PreparedTensor* prepared = work_ == nullptr ? nullptr : work_->find(tensor.name);
    return prepared == nullptr ? stream.write(weight.data, file, tensor, hash, advance)
                               : stream.copy(weight.data, file, *prepared, hash, advance);
  }

  const std::string& folder_;
  const ExportPlan& plan_;
  const SourceWeights& weights_;
  const WorkFolder* work_;  ///< tensors that are made already; null without calibration
  const ExportOptions& options_;
  const ProgressCallback& progress_;
  SourceHashes& hashes_;
  uint64_t total_ = 0;
  uint64_t done_ = 0;
};

Json source_files(const std::vector<CompanionFile>& companions, const SourceHashes& hashes) {
  Json files = Json::array();
  for (const auto& [path, hash] : hashes) {
    std::error_code ignored;
    files.push_back({{"file", std::filesystem::path(path).filename().string()},
                     {"bytes", std::filesystem::file_size(path, ignored)},
                     {"xxh3", to_hex(hash.digest())},
                     {"hashed", "tensors in package order"}});
  }
  for (const CompanionFile& file : companions) {
    files.push_back(
        {{"file", file.name}, {"bytes", file.bytes}, {"xxh3", to_hex(file.hash)}, {"hashed", "file"}});
  }
  return files;
}

/// What the calibrated tensors were made from and how far their outputs are off.
Json calibration_record(const CalibrationSet& set, const WorkFolder* work) {
  Json record = to_record(set);
  if (work == nullptr) return record;
  Json tensors = Json::array();
  for (const auto& [name, tensor] : work->tensors()) {
    tensors.push_back({{"name", name},
                       {"output_error", tensor.output_error},
                       {"damping", tensor.damping},
                       {"range_ratio", tensor.range_ratio}});
  }
  record["parameters"] = method_parameters();
  record["tensors"] = std::move(tensors);
  return record;
}

/// The adapters that were merged in, by folder name and weight.
Json adapter_record(const std::vector<AdapterChoice>& adapters) {
  Json record = Json::array();
  for (const AdapterChoice& choice : adapters) {
    record.push_back(
        {{"adapter", std::filesystem::path(choice.folder).lexically_normal().filename().string()},
         {"weight", choice.weight}});
  }
  return record;
}

/// Neither time nor host: the same export gives the same manifest.
Json provenance(const ExportOptions& options, const ModelConfig& config, const CodecChoice& choice,
                const std::vector<CompanionFile>& companions, const SourceHashes& hashes,
                const WorkFolder* work) {
  Json record = Json::object();
  record["tool"] = "hexlm " + options.tool_version;
  record["argv"] = options.argv;
  record["method"] = to_string(options.method);
  if (config.vision) record["vision_method"] = to_string(vision_method_of(options));
  if (options.rotate) record["rotation"] = "hadamard";
  record["codecs"] = {{"linear", to_string(choice.linear)},
                      {"lm_head", to_string(choice.lm_head)},
                      {"embedding", to_string(choice.embedding)}};
  if (config.vision) record["codecs"]["vision"] = to_string(choice.vision);
  if (!options.recipe.rules.empty()) {
    Json rules = Json::array();
    for (const RecipeRule& rule : options.recipe.rules) {
      rules.push_back({{"tensors", rule.selector}, {"codec", to_string(rule.codec)}});
    }
    record["recipe"] = std::move(rules);
  }
  if (options.calibration) record["calibration"] = calibration_record(*options.calibration, work);
  if (!options.adapters.empty()) record["adapters"] = adapter_record(options.adapters);
  record["source"] = source_files(companions, hashes);
  return record;
}

}  // namespace

Result<ExportResult> export_package(const ExportOptions& options, const ExportPlan& plan,
                                    const ProgressCallback& progress) {
  const auto start = std::chrono::steady_clock::now();
  HEXLM_ASSIGN(const CodecChoice choice, choose_codecs(options, plan.config.text.tied_embeddings));
  HEXLM_ASSIGN(const SourceModel source,
               open_source_model(options.checkpoint, options.adapters, options.rotate));
  std::optional<WorkFolder> work;
  if (is_calibrated(options)) {
    HEXLM_ASSIGN(work, calibrate_export(options, plan, source.weights, progress));
  }
  HEXLM_ASSIGN(AtomicFolder folder, AtomicFolder::create(options.package, options.replace, "manifest.json"));
  Manifest manifest;
  manifest.architecture = plan.config.model_type;
  manifest.configuration = plan.config.source;
  const std::string& path = folder.working_path();
  const bool from_file = is_gguf_path(options.checkpoint);
  HEXLM_ASSIGN(Companions companions,
               from_file ? write_companions(source.files, path) : copy_companions(options.checkpoint, path));
  manifest.files = std::move(companions.files);
  HEXLM_TRY(write_runtime_defaults(from_file ? path : options.checkpoint, path));
  SourceHashes hashes;
  ThreadPool pool(options.threads);
  const WorkFolder* prepared = work ? &*work : nullptr;
  FileExport writer(path, plan, *source.weights, prepared, options, progress, hashes);
  for (const char* file : {weights_file, vision_file}) HEXLM_TRY(writer.write(file, pool, manifest));
  manifest.provenance = provenance(options, plan.config, choice, companions.sources, hashes, prepared);
  HEXLM_TRY(write_file_atomically(path + "/manifest.json", seal_manifest(to_json(manifest))));
  if (interrupted()) return fail(ErrorCode::interrupted, "export interrupted before its end");
  HEXLM_TRY(folder.commit());
  if (work) work->remove();
  ExportResult result;
  result.bytes = plan.bytes;
  result.bits_per_weight = plan.bits_per_weight;
  result.peak_memory_bytes = peak_memory_bytes();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace hexlm
