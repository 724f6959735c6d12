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
#include "quantization/codec_choice.hpp"
#include "quantization/companions.hpp"
#include "quantization/export_source.hpp"
#include "quantization/resources.hpp"
#include "quantization/source_model.hpp"
#include "quantization/tensor_stream.hpp"

namespace hexlm {
namespace {

constexpr const char* weights_file = "weights.safetensors";

/// One hash per checkpoint file, over the bytes of its tensors in the order in which they were read: it costs
/// no second pass over gigabytes.
using SourceHashes = std::map<std::string, Hasher, std::less<>>;

std::vector<TensorPlan> file_plan(const ExportPlan& plan) {
  std::vector<TensorPlan> parts;
  for (const ExportTensor& tensor : plan.tensors) {
    PackageTensor stored;
    stored.name = tensor.name;
    stored.codec = tensor.codec;
    stored.shape = tensor.shape;
    for (TensorPlan& part : tensor_plans(stored)) parts.push_back(std::move(part));
  }
  return parts;
}

Result<std::vector<PackageTensor>> write_weights(const std::string& folder, const ExportOptions& options,
                                                 const ExportPlan& plan, const SourceWeights& weights,
                                                 const ProgressCallback& progress, SourceHashes& hashes) {
  HEXLM_ASSIGN(SafetensorsWriter writer,
               SafetensorsWriter::create(folder + "/" + weights_file, file_plan(plan), {{"format", "hexlm"}},
                                         package_alignment));
  ThreadPool pool(options.threads);
  TensorStream stream(writer, pool);
  uint64_t total = 0;
  for (const ExportTensor& tensor : plan.tensors) total += tensor.source_bytes;
  uint64_t done = 0;
  std::vector<PackageTensor> written;
  written.reserve(plan.tensors.size());
  for (const ExportTensor& tensor : plan.tensors) {
    HEXLM_ASSIGN(const WeightView weight, weights.find(tensor.name));
    if (weight.shape != tensor.shape || weight.stored_bytes() != tensor.source_bytes) {
      return fail(
          ErrorCode::bad_input,
          fmt::format("{}: tensor '{}' has shape {}, {} when the export was planned", weights.file_of(weight),
                      weight.data.name, format_shape(weight.shape), format_shape(tensor.shape)));
    }
    const auto advance = [&](uint64_t bytes) {
      done += bytes;
      return !progress || progress(tensor.name, done, total);
    };
    const SourceFile file{weights.mapping(weight), weights.file_of(weight)};
    Hasher& hash = hashes[file.path];
    auto written_tensor = weight.codec.is_float() ? stream.write(weight.data, file, tensor, hash, advance)
                                                  : stream.copy(weight, tensor, hash, advance);
    HEXLM_ASSIGN(PackageTensor stored, std::move(written_tensor));
    stored.file = weights_file;
    written.push_back(std::move(stored));
  }
  HEXLM_TRY(writer.commit());
  return written;
}

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

/// The files of the adapters that were merged in, by folder name and weight.
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
Json provenance(const ExportOptions& options, const CodecChoice& choice,
                const std::vector<CompanionFile>& companions, const SourceHashes& hashes) {
  Json record = Json::object();
  record["tool"] = "hexlm " + options.tool_version;
  record["argv"] = options.argv;
  record["method"] = "rtn";
  record["codecs"] = {{"linear", to_string(choice.linear)},
                      {"lm_head", to_string(choice.lm_head)},
                      {"embedding", to_string(choice.embedding)}};
  if (!options.adapters.empty()) record["adapters"] = adapter_record(options.adapters);
  record["source"] = source_files(companions, hashes);
  return record;
}

}  // namespace

Result<ExportResult> export_package(const ExportOptions& options, const ExportPlan& plan,
                                    const ProgressCallback& progress) {
  const auto start = std::chrono::steady_clock::now();
  HEXLM_ASSIGN(const CodecChoice choice, choose_codecs(options, plan.config.text.tied_embeddings));
  HEXLM_ASSIGN(const SourceModel source, open_source_model(options.checkpoint, options.adapters));
  HEXLM_ASSIGN(AtomicFolder folder, AtomicFolder::create(options.package, options.replace, "manifest.json"));
  Manifest manifest;
  manifest.architecture = plan.config.model_type;
  manifest.configuration = plan.config.source;
  const bool from_file = is_gguf_path(options.checkpoint);
  HEXLM_ASSIGN(const std::vector<CompanionFile> companions,
               from_file ? write_companions(source.files, folder.working_path())
                         : copy_companions(options.checkpoint, folder.working_path()));
  HEXLM_TRY(
      write_runtime_defaults(from_file ? folder.working_path() : options.checkpoint, folder.working_path()));
  SourceHashes hashes;
  HEXLM_ASSIGN(manifest.tensors,
               write_weights(folder.working_path(), options, plan, *source.weights, progress, hashes));
  manifest.provenance = provenance(options, choice, companions, hashes);
  HEXLM_TRY(
      write_file_atomically(folder.working_path() + "/manifest.json",
                            to_json(manifest).dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  HEXLM_TRY(folder.commit());
  ExportResult result;
  result.bytes = plan.bytes;
  result.bits_per_weight = plan.bits_per_weight;
  result.peak_memory_bytes = peak_memory_bytes();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace hexlm
