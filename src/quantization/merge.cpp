#include "quantization/merge.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <set>

#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "formats/checkpoint_weights.hpp"
#include "formats/gguf.hpp"
#include "models/tensor_names.hpp"
#include "quantization/encode.hpp"
#include "quantization/resources.hpp"
#include "quantization/source_model.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;

constexpr const char* record_file = "merge.json";
constexpr const char* index_file = "model.safetensors.index.json";
/// Copied pieces: large enough that the writes cost nothing beside the disk.
constexpr size_t copied_bytes = size_t{4} << 20;

struct MergedTensor {
  std::string name;       ///< as in the checkpoint
  std::string canonical;  ///< "" for tensors that are no weights
  const TensorView* source = nullptr;
  bool changed = false;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};

/// Shards by file name, each with its tensors in file order.
using Shards = std::map<std::string, std::vector<MergedTensor>>;

Codec codec_for_dtype(DType dtype) {
  if (dtype == DType::f16) return {Codec::Kind::f16, 16, 0, true};
  if (dtype == DType::bf16) return {Codec::Kind::bf16, 16, 0, true};
  return {};
}

/// Weight files of any format, which the merge writes itself or must not carry along.
bool is_weight_file(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const char* extension : {".safetensors", ".bin", ".pt", ".pth", ".gguf"}) {
    if (name.ends_with(extension)) return true;
  }
  return name.ends_with(".index.json") || name == record_file;
}

class CheckpointMerger {
 public:
  CheckpointMerger(const MergeOptions& options, const ProgressCallback& progress)
      : options_(options), progress_(progress) {}

  Result<MergeResult> run() {
    if (is_gguf_path(options_.checkpoint)) return quantized("a GGUF file");
    HEXLM_ASSIGN(const std::shared_ptr<CheckpointWeights> base, CheckpointWeights::open(options_.checkpoint));
    HEXLM_ASSIGN(const SourceModel merged, open_source_model(options_.checkpoint, options_.adapters));
    weights_ = merged.weights;
    if (merged.imported) return quantized("a quantized checkpoint");
    HEXLM_TRY(list_tensors(*base, merged.config));
    HEXLM_TRY(check_disk());
    HEXLM_ASSIGN(AtomicFolder folder, AtomicFolder::create(options_.output, options_.replace, record_file));
    for (const auto& [file, tensors] : shards_) {
      HEXLM_TRY(write_shard(folder.working_path() + "/" + file, tensors));
    }
    if (shards_.size() > 1) HEXLM_TRY(write_index(folder.working_path()));
    HEXLM_TRY(copy_files(folder.working_path()));
    HEXLM_TRY(write_json(folder.working_path() + "/config.json", merged.config.source));
    HEXLM_TRY(write_json(folder.working_path() + "/" + record_file, record()));
    HEXLM_TRY(folder.commit());
    return result_;
  }

 private:
  tl::unexpected<Error> quantized(const char* what) const {
    return fail(
        ErrorCode::unsupported,
        fmt::format("{} is {}, expected a float checkpoint", options_.checkpoint, what),
        "merge into the checkpoint that it was made from, or apply the adapter with `hexlm run --adapter`");
  }

  Status list_tensors(const CheckpointWeights& base, const ModelConfig& config) {
    std::set<std::string, std::less<>> listed;
    std::string last_file;
    for (const TensorView* tensor : base.checkpoint().tensors()) {
      const MappedFile* file = base.checkpoint().file_of(tensor->name);
      last_file = fs::path(file->path()).filename().string();
      mappings_[last_file] = file;
      MergedTensor merged{tensor->name,  canonical_name(tensor->name).value_or(""),
                          tensor,        false,
                          tensor->dtype, tensor->shape};
      if (!merged.canonical.empty()) {
        HEXLM_TRY(note_change(merged, file->path()));
        listed.insert(merged.canonical);
      }
      add(last_file, std::move(merged));
    }
    // A head that comes apart from its embedding, the only weight that a merge adds.
    for (const std::string& name : weights_->names()) {
      if (listed.contains(name)) continue;
      MergedTensor merged{checkpoint_name(config, name), name, nullptr, true, DType::f32, {}};
      HEXLM_TRY(note_change(merged, ""));
      add(last_file, std::move(merged));
    }
    return {};
  }

  /// Whether the merged weight is other than the tensor stored in the file `path`, and then its type and
  /// shape.
  Status note_change(MergedTensor& tensor, const std::string& path) {
    const Result<WeightView> described = weights_->describe(tensor.canonical);
    // Types that no weight of the model has are carried along as they are.
    if (!described && tensor.source != nullptr) return {};
    HEXLM_ASSIGN(const WeightView view, described);
    const bool computed = weights_->is_computed(tensor.canonical);
    const MappedFile* file = weights_->mapping(view);
    tensor.changed = tensor.source == nullptr || computed || file == nullptr || file->path() != path;
    if (!tensor.changed) return {};
    tensor.shape = view.shape;
    // What is replaced or moved keeps its bytes; what is computed is rounded to the type asked for.
    tensor.dtype = computed ? options_.dtype : view.data.dtype;
    return {};
  }

  void add(const std::string& file, MergedTensor tensor) {
    int64_t elements = 1;
    for (const int64_t dim : tensor.shape) elements *= dim;
    result_.tensors += 1;
    result_.tensors_changed += tensor.changed ? 1 : 0;
    result_.bytes += static_cast<uint64_t>(elements) * static_cast<uint64_t>(bit_width(tensor.dtype)) / 8;
    shards_[file].push_back(std::move(tensor));
  }

  Status check_disk() const {
    HEXLM_ASSIGN(const uint64_t free, free_disk_bytes(options_.output));
    if (free >= result_.bytes) return {};
    return fail(ErrorCode::limit,
                fmt::format("{}: the checkpoint takes {}, {} are free on its disk", options_.output,
                            format_bytes(result_.bytes), format_bytes(free)),
                "free disk space or write to another disk");
  }

  Status write_shard(const std::string& path, const std::vector<MergedTensor>& tensors) {
    std::vector<TensorPlan> plan;
    plan.reserve(tensors.size());
    for (const MergedTensor& tensor : tensors) plan.push_back({tensor.name, tensor.dtype, tensor.shape});
    HEXLM_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, plan, {{"format", "pt"}}, 1));
    for (const MergedTensor& tensor : tensors) {
      if (tensor.changed) {
        HEXLM_TRY(write_changed(writer, tensor));
      } else {
        const MappedFile* file = mappings_.at(fs::path(path).filename().string());
        HEXLM_TRY(copy(writer, tensor, tensor.source->bytes, file));
      }
    }
    return writer.commit();
  }

  Status copy(SafetensorsWriter& writer, const MergedTensor& tensor, std::span<const std::byte> bytes,
              const MappedFile* file) {
    for (size_t begin = 0; begin < bytes.size(); begin += copied_bytes) {
      const auto piece = bytes.subspan(begin, std::min(copied_bytes, bytes.size() - begin));
      HEXLM_TRY(writer.write(piece));
      if (file != nullptr) file->release(piece);
      HEXLM_TRY(advance(tensor, piece.size()));
    }
    return {};
  }

  Status advance(const MergedTensor& tensor, uint64_t bytes) {
    done_ += bytes;
    if (!progress_ || progress_(tensor.name, done_, result_.bytes)) return {};
    return fail(ErrorCode::interrupted, fmt::format("merge interrupted at tensor '{}'", tensor.name));
  }

  Status write_changed(SafetensorsWriter& writer, const MergedTensor& tensor) {
    HEXLM_ASSIGN(const WeightView weight, weights_->find(tensor.canonical));
    if (weight.data.dtype == tensor.dtype && !weights_->is_computed(tensor.canonical)) {
      return copy(writer, tensor, weight.data.bytes, weights_->mapping(weight));
    }
    // Row by row: the rounded form is not held whole as well.
    const Codec codec = codec_for_dtype(tensor.dtype);
    const int64_t columns = weight.columns();
    const auto row_bytes = static_cast<size_t>(columns * bit_width(weight.data.dtype) / 8);
    EncodedRows encoded;
    for (int64_t row = 0; row < weight.rows(); ++row) {
      const auto fault = encode_rows(weight.data.bytes.data() + static_cast<size_t>(row) * row_bytes,
                                     weight.data.dtype, 1, columns, codec, Method::rtn, encoded);
      if (fault) {
        Error error =
            describe(*fault, codec, fmt::format("{}: merged tensor '{}'", options_.checkpoint, tensor.name),
                     std::array{row, fault->column});
        error.hint = fault->kind == EncodeFault::Kind::not_finite ? "the adapter or the checkpoint is damaged"
                                                                  : error.hint;
        return tl::unexpected<Error>(std::move(error));
      }
      HEXLM_TRY(writer.write(encoded.data));
      HEXLM_TRY(advance(tensor, encoded.data.size()));
    }
    weights_->release(weight);
    return {};
  }

  Status write_json(const std::string& path, const Json& json) const {
    return write_file_atomically(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  Status write_index(const std::string& folder) const {
    Json map = Json::object();
    for (const auto& [file, tensors] : shards_) {
      for (const MergedTensor& tensor : tensors) map[tensor.name] = file;
    }
    return write_json(folder + "/" + index_file,
                      {{"metadata", {{"total_size", result_.bytes}}}, {"weight_map", std::move(map)}});
  }

  /// Tokenizer, templates, licences: every file beside the weights.
  Status copy_files(const std::string& folder) const {
    std::error_code error;
    for (fs::directory_iterator entry(options_.checkpoint, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code ignored;
      if (!entry->is_regular_file(ignored) || is_weight_file(entry->path())) continue;
      HEXLM_ASSIGN(const std::string content, read_file(entry->path().string()));
      HEXLM_TRY(write_file_atomically(folder + "/" + entry->path().filename().string(), content));
    }
    if (!error) return {};
    return fail(ErrorCode::bad_input,
                fmt::format("{}: can't list: {}", options_.checkpoint, error.message()));
  }

  Json record() const {
    Json adapters = Json::array();
    for (const AdapterChoice& choice : options_.adapters) {
      adapters.push_back({{"adapter", fs::path(choice.folder).lexically_normal().filename().string()},
                          {"weight", choice.weight}});
    }
    return {{"tool", "hexlm " + options_.tool_version},
            {"checkpoint", fs::path(options_.checkpoint).lexically_normal().filename().string()},
            {"adapters", std::move(adapters)},
            {"dtype", to_string(codec_for_dtype(options_.dtype))},
            {"tensors_changed", result_.tensors_changed}};
  }

  const MergeOptions& options_;
  const ProgressCallback& progress_;
  std::shared_ptr<const SourceWeights> weights_;
  Shards shards_;
  std::map<std::string, const MappedFile*> mappings_;
  MergeResult result_;
  uint64_t done_ = 0;
};

}  // namespace

Result<MergeResult> merge_checkpoint(const MergeOptions& options, const ProgressCallback& progress) {
  if (options.adapters.empty())
    return fail(ErrorCode::usage, "no adapter to merge", "name one with --adapter");
  return CheckpointMerger(options, progress).run();
}

}  // namespace hexlm
