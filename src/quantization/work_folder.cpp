#include "quantization/work_folder.hpp"

#include <filesystem>
#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "formats/json.hpp"
#include "formats/two_level.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t record_limit = uint64_t{64} << 20;

std::string layer_file(const std::string& folder, int64_t layer, const char* extension) {
  return (fs::path(folder) / fmt::format("layer-{:04}.{}", layer, extension)).string();
}

/// Temporary files of an export that was killed end otherwise.
bool is_ours(const std::string& name) { return name.starts_with("layer-"); }

uint64_t checksum_of(const EncodedRows& encoded) {
  Hasher hasher;
  hasher.update(encoded.data);
  hasher.update(encoded.group_scales);
  hasher.update(std::as_bytes(std::span(encoded.scales)));
  hasher.update(std::as_bytes(std::span(encoded.offsets)));
  return hasher.digest();
}

Json record_of(const FinishedTensor& tensor) {
  return {{"name", tensor.stored.name},
          {"codec", to_string(tensor.stored.codec)},
          {"shape", tensor.stored.shape},
          {"stored_bytes", tensor.stored.stored_bytes},
          {"checksum", to_hex(tensor.stored.checksum)},
          {"relative_error", tensor.stored.relative_error},
          {"output_error", tensor.output_error},
          {"damping", tensor.damping},
          {"range_ratio", tensor.range_ratio}};
}

/// Why a layer's files can't be used; they are made again then.
Status broken(const std::string& path, std::string_view why) {
  return fail(ErrorCode::bad_input, fmt::format("{}: {}", path, why));
}

Result<PreparedTensor> read_record(const Json& record, const std::string& path, const SafetensorsFile& file) {
  PreparedTensor tensor;
  const auto text = [&](const char* key) { return record.contains(key) && record[key].is_string(); };
  const auto number = [&](const char* key) { return record.contains(key) && record[key].is_number(); };
  if (!record.is_object() || !text("name") || !text("codec") || !text("checksum") ||
      !number("stored_bytes") || !number("relative_error") || !number("output_error") || !number("damping") ||
      !number("range_ratio") || !record.contains("shape") || !record["shape"].is_array()) {
    return fail(ErrorCode::bad_input, fmt::format("{}: a record is incomplete", path));
  }
  tensor.stored.name = record["name"].get<std::string>();
  HEXLM_ASSIGN(tensor.stored.codec, parse_codec(record["codec"].get<std::string>()));
  for (const Json& dim : record["shape"]) {
    if (!dim.is_number_integer()) return fail(ErrorCode::bad_input, fmt::format("{}: a shape is none", path));
    tensor.stored.shape.push_back(dim.get<int64_t>());
  }
  tensor.stored.stored_bytes = record["stored_bytes"].get<uint64_t>();
  tensor.stored.relative_error = record["relative_error"].get<double>();
  tensor.output_error = record["output_error"].get<double>();
  tensor.damping = record["damping"].get<double>();
  tensor.range_ratio = record["range_ratio"].get<double>();
  Hasher hasher;
  for (const TensorPlan& plan : tensor_plans(tensor.stored)) {
    const TensorView* part = file.find(plan.name);
    if (part == nullptr || part->dtype != plan.dtype || part->shape != plan.shape) {
      return fail(ErrorCode::bad_input, fmt::format("{}: {} is missing", file.file().path(), plan.name));
    }
    hasher.update(part->bytes);
    tensor.parts.push_back(*part);
  }
  tensor.stored.checksum = hasher.digest();
  if (to_hex(tensor.stored.checksum) != record["checksum"].get<std::string>()) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: {} is damaged", file.file().path(), tensor.stored.name));
  }
  return tensor;
}

}  // namespace

std::vector<float> decode_stored(const PreparedTensor& tensor) {
  WeightView view;
  view.codec = tensor.stored.codec.expanded();
  view.shape = tensor.stored.shape;
  view.data = tensor.parts[0];
  std::vector<uint16_t> scales;
  if (tensor.stored.codec.is_two_level()) {
    scales = expand_scales(tensor.stored.codec, view.rows(), view.columns(), tensor.parts[1].bytes,
                           tensor.parts[2].bytes);
    view.scales.bytes = std::as_bytes(std::span(scales));
  } else {
    if (tensor.parts.size() > 1) view.scales = tensor.parts[1];
    if (tensor.parts.size() > 2) view.offsets = tensor.parts[2];
  }
  return decode_rows(view, 0, view.rows());
}

Result<WorkFolder> WorkFolder::open(const std::string& path, const std::string& key) {
  WorkFolder folder;
  folder.path_ = path;
  folder.key_ = key;
  std::error_code error;
  fs::create_directories(path, error);
  if (!fs::is_directory(path)) {
    return fail(ErrorCode::runtime,
                fmt::format("{}: cannot be created as a folder: {}", path, error.message()));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (is_ours(name)) continue;
    return fail(ErrorCode::usage, fmt::format("{}: holds '{}', which is no part of an export", path, name),
                "give --work an empty or a new folder");
  }
  while (folder.load(folder.finished_layers())) continue;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    int64_t layer = 0;
    const std::string name = entry.path().filename().string();
    const std::string digits = name.substr(6, name.find('.') - 6);
    const size_t first = std::min(digits.find_first_not_of('0'), digits.size() - 1);
    if (parse_integer(digits.substr(first), layer) && layer < folder.finished_layers()) continue;
    fs::remove(entry.path(), error);
  }
  return folder;
}

Status WorkFolder::load(int64_t layer) {
  const std::string path = layer_file(path_, layer, "json");
  HEXLM_ASSIGN(const std::string text, read_file(path, record_limit));
  HEXLM_ASSIGN(const Json record, parse_json(text, path));
  if (!record.is_object() || !record.contains("key") || record["key"] != key_ ||
      !record.contains("tensors")) {
    return broken(path, "is of another export");
  }
  HEXLM_ASSIGN(SafetensorsFile file, SafetensorsFile::open(layer_file(path_, layer, "safetensors")));
  std::vector<std::string> names;
  for (const Json& entry : record["tensors"]) {
    HEXLM_ASSIGN(PreparedTensor tensor, read_record(entry, path, file));
    names.push_back(tensor.stored.name);
    tensors_[names.back()] = std::move(tensor);
  }
  files_.push_back(std::make_shared<SafetensorsFile>(std::move(file)));
  layers_.push_back(std::move(names));
  return {};
}

Status WorkFolder::store(std::vector<FinishedTensor> tensors) {
  const int64_t layer = finished_layers();
  std::vector<TensorPlan> plans;
  Json records = Json::array();
  for (FinishedTensor& tensor : tensors) {
    tensor.stored.checksum = checksum_of(tensor.encoded);
    const std::vector<TensorPlan> parts = tensor_plans(tensor.stored);
    plans.insert(plans.end(), parts.begin(), parts.end());
    records.push_back(record_of(tensor));
  }
  HEXLM_ASSIGN(SafetensorsWriter writer,
               SafetensorsWriter::create(layer_file(path_, layer, "safetensors"), plans,
                                         {{"format", "hexlm"}}, package_alignment));
  for (const FinishedTensor& tensor : tensors) {
    HEXLM_TRY(writer.write(tensor.encoded.data));
    if (!tensor.encoded.group_scales.empty()) HEXLM_TRY(writer.write(tensor.encoded.group_scales));
    for (const std::vector<uint16_t>* part : {&tensor.encoded.scales, &tensor.encoded.offsets}) {
      if (!part->empty()) HEXLM_TRY(writer.write(std::as_bytes(std::span(*part))));
    }
  }
  HEXLM_TRY(writer.commit());
  // The record comes last: a layer counts as finished once it is there.
  const Json record = {{"key", key_}, {"tensors", std::move(records)}};
  HEXLM_TRY(write_file_atomically(layer_file(path_, layer, "json"), record.dump(1) + "\n"));
  return load(layer);
}

const PreparedTensor* WorkFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

void WorkFolder::remove() {
  tensors_.clear();
  files_.clear();
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace hexlm
