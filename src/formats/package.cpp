#include "formats/package.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "formats/json.hpp"
#include "formats/prepacked.hpp"
#include "formats/two_level.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;

constexpr const char* manifest_name = "manifest.json";
constexpr const char* broken_hint = "copy or export the package again";

tl::unexpected<Error> bad_tensor(const SafetensorsFile& file, std::string_view name, std::string_view what) {
  return fail(ErrorCode::bad_input, fmt::format("{}: tensor '{}': {}", file.file().path(), name, what),
              broken_hint);
}

std::string describe(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} {}", to_string(dtype), format_shape(shape));
}

/// The file must hold `part` as planned, at a place that backends may load whole vectors from.
Status check_part(const SafetensorsFile& file, const TensorPlan& part) {
  const TensorView* stored = file.find(part.name);
  if (stored == nullptr)
    return bad_tensor(file, part.name, "is listed in the manifest but missing in the file");
  if (stored->dtype != part.dtype || stored->shape != part.shape) {
    return bad_tensor(file, part.name,
                      fmt::format("the manifest says {}, the file {}", describe(part.dtype, part.shape),
                                  describe(stored->dtype, stored->shape)));
  }
  const auto offset = static_cast<size_t>(stored->bytes.data() - file.file().bytes().data());
  if (!stored->bytes.empty() && offset % package_alignment != 0) {
    return bad_tensor(
        file, part.name,
        fmt::format("lies at file offset {}, expected a multiple of {}", offset, package_alignment));
  }
  return {};
}

Status check_nothing_else(const SafetensorsFile& file, const std::set<std::string, std::less<>>& listed) {
  for (const TensorView& tensor : file.tensors()) {
    if (!tensor.name.starts_with(padding_prefix) && listed.find(tensor.name) == listed.end()) {
      return bad_tensor(file, tensor.name, "is in the file but not in the manifest");
    }
  }
  return {};
}

}  // namespace

Package::Package() = default;
Package::~Package() = default;

bool Package::is_package(const std::string& folder) {
  std::error_code error;
  return fs::is_regular_file(fs::path(folder) / manifest_name, error);
}

Result<std::shared_ptr<Package>> Package::open(const std::string& folder, bool verify, int threads) {
  std::shared_ptr<Package> package(new Package());
  package->folder_ = folder;
  HEXLM_ASSIGN(package->manifest_, read_manifest(folder, verify));
  if (verify) {
    for (const PackageFile& file : package->manifest_.files) HEXLM_TRY(verify_file(folder, file));
  }
  HEXLM_TRY(package->open_files());
  HEXLM_ASSIGN(std::optional<Prepacked> prepacked, Prepacked::open(folder, package->manifest_, verify));
  if (prepacked) package->prepacked_ = std::make_unique<const Prepacked>(*std::move(prepacked));
  if (verify) HEXLM_TRY(package->verify_weights(threads));
  package->verified_ = verify;
  return package;
}

/// Every tensor of the manifest in its file as its codec asks, and nothing else there.
Status Package::open_files() {
  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> listed;
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    const PackageTensor& tensor = manifest_.tensors[i];
    if (files_.find(tensor.file) == files_.end()) {
      HEXLM_ASSIGN(SafetensorsFile opened, SafetensorsFile::open((fs::path(folder_) / tensor.file).string()));
      files_.emplace(tensor.file, std::move(opened));
    }
    const SafetensorsFile& file = files_.find(tensor.file)->second;
    for (const TensorPlan& part : tensor_plans(tensor)) {
      HEXLM_TRY(check_part(file, part));
      if (!listed[tensor.file].insert(part.name).second) {
        return bad_tensor(file, part.name, "belongs to two weights of the manifest");
      }
    }
    index_.emplace(tensor.name, i);
  }
  for (const auto& [name, file] : files_) HEXLM_TRY(check_nothing_else(file, listed[name]));
  return {};
}

/// What is in a tensor file beside the tensors: its header, and padding between them.
Status Package::verify_frame(const PackageFile& listed) const {
  const auto found = files_.find(listed.name);
  if (found == files_.end()) return {};  // verify_file compared it whole
  const SafetensorsFile& file = found->second;
  const uint64_t checksum = hash64(file.header());
  if (checksum != listed.checksum) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: header: the manifest has checksum {}, the file's bytes give {}: damaged",
                            file.file().path(), to_hex(listed.checksum), to_hex(checksum)),
                broken_hint);
  }
  for (const TensorView& tensor : file.tensors()) {
    if (!tensor.name.starts_with(padding_prefix)) continue;
    for (size_t i = 0; i < tensor.bytes.size(); ++i) {
      if (tensor.bytes[i] == std::byte{0}) continue;
      return bad_tensor(
          file, tensor.name,
          fmt::format("byte {} is {}, padding is 0: damaged", i, to_integer<int>(tensor.bytes[i])));
    }
  }
  return {};
}

/// Reports the first tensor of the manifest that differs, whatever order the threads came to them.
Status Package::verify_some(const std::vector<size_t>& tensors, int threads) const {
  ThreadPool pool(threads);
  std::mutex mutex;
  std::optional<std::pair<int64_t, Error>> first;
  const auto count = static_cast<int64_t>(tensors.size());
  pool.run(count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      Status status = verify(manifest_.tensors[tensors[static_cast<size_t>(i)]]);
      if (status) continue;
      const std::lock_guard lock(mutex);
      if (!first || i < first->first) first.emplace(i, std::move(status).error());
    }
  });
  if (first) return tl::unexpected<Error>(std::move(first->second));
  return {};
}

/// All that is read without an image; the vision tensors are compared when they are first used.
Status Package::verify_weights(int threads) const {
  for (const PackageFile& file : manifest_.files) HEXLM_TRY(verify_frame(file));
  std::vector<size_t> now;
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    const PackageTensor& tensor = manifest_.tensors[i];
    if (tensor.file != vision_file && find_packed(tensor.name) == nullptr) now.push_back(i);
  }
  return verify_some(now, threads);
}

Status Package::verify_tensors(std::string_view file, int threads) const {
  std::vector<size_t> tensors;
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    if (manifest_.tensors[i].file == file) tensors.push_back(i);
  }
  return verify_some(tensors, threads);
}

Status Package::verify_deferred(int threads) const {
  std::vector<size_t> tensors;
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    if (find_packed(manifest_.tensors[i].name) == nullptr) continue;
    HEXLM_TRY(prepacked_->verify(manifest_.tensors[i].name));
    tensors.push_back(i);
  }
  return verify_some(tensors, threads);
}

Status Package::verify(const PackageTensor& tensor) const {
  const SafetensorsFile& file = files_.find(tensor.file)->second;
  Hasher hasher;
  for (const TensorView& part : stored_parts(tensor)) {
    hasher.update(part.bytes);
    file.file().release(part.bytes);
  }
  const uint64_t checksum = hasher.digest();
  if (checksum == tensor.checksum) return {};
  return bad_tensor(file, tensor.name,
                    fmt::format("the manifest has checksum {}, the file's bytes give {}: damaged",
                                to_hex(tensor.checksum), to_hex(checksum)));
}

std::vector<TensorView> Package::stored_parts(const PackageTensor& tensor) const {
  const SafetensorsFile& file = files_.find(tensor.file)->second;
  std::vector<TensorView> parts;
  for (const TensorPlan& plan : tensor_plans(tensor))
    parts.push_back(*file.find(plan.name));  // `open` checked
  return parts;
}

TensorView Package::expanded_scales(const PackageTensor& tensor, const std::vector<TensorView>& parts) const {
  const int64_t rows = tensor.shape[0];
  const int64_t groups = tensor.codec.groups(tensor.shape[1]);
  const std::lock_guard lock(expanded_mutex_);
  const auto [entry, is_new] = expanded_.try_emplace(tensor.name);
  std::vector<uint16_t>& scales = entry->second;
  if (is_new) scales = expand_scales(tensor.codec, rows, tensor.shape[1], parts[1].bytes, parts[2].bytes);
  return {tensor.name + ".scales", DType::f16, {rows, groups}, std::as_bytes(std::span(scales))};
}

const PackageTensor* Package::find_tensor(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &manifest_.tensors[found->second];
}

Result<WeightView> Package::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    std::vector<std::string> names;
    names.reserve(manifest_.tensors.size());
    for (const PackageTensor& tensor : manifest_.tensors) names.push_back(tensor.name);
    const std::string near = nearest(name, names);
    return fail(ErrorCode::bad_input, fmt::format("{}: the weight '{}' is missing", folder_, name),
                near.empty() ? "" : fmt::format("the nearest name is '{}'", near));
  }
  const PackageTensor& tensor = manifest_.tensors[found->second];
  WeightView weight;
  weight.name = tensor.name;
  weight.codec = tensor.codec.expanded();
  weight.shape = tensor.shape;
  const std::vector<TensorView> parts = stored_parts(tensor);
  weight.data = parts[0];
  if (tensor.codec.is_two_level()) {
    weight.scales = expanded_scales(tensor, parts);
    return weight;
  }
  if (parts.size() > 1) weight.scales = parts[1];
  if (parts.size() > 2) weight.offsets = parts[2];
  return weight;
}

bool Package::contains(std::string_view name) const { return index_.find(name) != index_.end(); }

std::string Package::packed_layout() const { return prepacked_ ? prepacked_->manifest().layout : ""; }

const PackedParts* Package::find_packed(std::string_view name) const {
  return prepacked_ ? prepacked_->find(name) : nullptr;
}

Status Package::check(std::string_view name, bool packed) const {
  const PackageTensor* tensor = find_tensor(name);
  if (!verified_ || tensor == nullptr || find_packed(name) == nullptr) return {};
  return packed ? prepacked_->verify(name) : verify(*tensor);
}

void Package::release(const WeightView& weight) const {
  const auto found = index_.find(weight.name);
  if (found == index_.end()) return;
  const PackageTensor& tensor = manifest_.tensors[found->second];
  const MappedFile& file = files_.find(tensor.file)->second.file();
  for (const TensorView& part : stored_parts(tensor)) file.release(part.bytes);
}

}  // namespace hexlm
