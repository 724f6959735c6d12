#include "formats/prepacked.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <set>

#include "base/atomic_file.hpp"
#include "base/hash.hpp"
#include "formats/json.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;

constexpr int prepacked_format_version = 1;
/// About 200 bytes a tensor.
constexpr uint64_t prepacked_manifest_limit = uint64_t{64} << 20;

constexpr const char* remove_hint =
    "remove the package's folder prepacked, which only makes loading faster, or export again";

/// Reads prepacked/manifest.json; a class for the file that every message names.
class PrepackedReader {
 public:
  explicit PrepackedReader(const std::string& origin) : origin_(origin) {}

  Result<PrepackedManifest> read(const Json& root) const {
    HEXLM_TRY(check_keys(root, {"format_version", "layout", "target", "file", "tensors", "checksum"}));
    HEXLM_ASSIGN(const int64_t version, natural(root, "format_version"));
    if (version != prepacked_format_version) {
      return bad("format_version", fmt::format("expected {}, got {}", prepacked_format_version, version));
    }
    PrepackedManifest manifest;
    HEXLM_ASSIGN(manifest.layout, text(root, "layout"));
    HEXLM_ASSIGN(manifest.target, text(root, "target"));
    const Json& file = root.at("file");
    HEXLM_TRY(check_keys(file, {"bytes", "checksum"}));
    HEXLM_ASSIGN(const int64_t bytes, natural(file, "bytes"));
    HEXLM_ASSIGN(const uint64_t checksum, digits(file, "checksum"));
    manifest.file = {prepacked_file, static_cast<uint64_t>(bytes), checksum};
    if (!root.at("tensors").is_array()) return bad("tensors", "expected an array");
    std::set<std::string> names;
    for (const Json& object : root.at("tensors")) {
      HEXLM_ASSIGN(PrepackedTensor tensor, read_tensor(object));
      if (!names.insert(tensor.name).second)
        return bad("tensors", fmt::format("'{}' is there twice", tensor.name));
      manifest.tensors.push_back(std::move(tensor));
    }
    return manifest;
  }

 private:
  tl::unexpected<Error> bad(std::string_view field, std::string_view what) const {
    return fail(ErrorCode::bad_input, fmt::format("{}: {}: {}", origin_, field, what), remove_hint);
  }
  Status check_keys(const Json& object, const std::vector<std::string>& known) const {
    if (!object.is_object())
      return bad("value", fmt::format("expected an object, got {}", object.type_name()));
    for (const std::string& key : known) {
      if (!object.contains(key)) return bad(key, "is missing");
    }
    for (const auto& member : object.items()) {
      if (std::find(known.begin(), known.end(), member.key()) == known.end())
        return bad(member.key(), "is unknown");
    }
    return {};
  }
  Result<std::string> text(const Json& object, const char* key) const {
    const Json& value = object.at(key);
    if (value.is_string() && !value.get_ref<const std::string&>().empty()) return value.get<std::string>();
    return bad(key, "expected a text");
  }
  Result<int64_t> natural(const Json& object, const char* key) const {
    const Json& value = object.at(key);
    if (value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{INT64_MAX})
      return value.get<int64_t>();
    return bad(key, "expected an integer of at least 0");
  }
  Result<uint64_t> digits(const Json& object, const char* key) const {
    HEXLM_ASSIGN(const std::string hex, text(object, key));
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (error != std::errc() || to_hex(value) != hex) return bad(key, "expected 16 hexadecimal digits");
    return value;
  }
  Result<PrepackedTensor> read_tensor(const Json& object) const {
    HEXLM_TRY(check_keys(object, {"name", "code_bytes", "scale_count", "offsets", "checksum", "made_from"}));
    PrepackedTensor tensor;
    HEXLM_ASSIGN(tensor.name, text(object, "name"));
    HEXLM_ASSIGN(tensor.code_bytes, natural(object, "code_bytes"));
    HEXLM_ASSIGN(tensor.scale_count, natural(object, "scale_count"));
    HEXLM_ASSIGN(tensor.checksum, digits(object, "checksum"));
    HEXLM_ASSIGN(tensor.made_from, digits(object, "made_from"));
    if (!object.at("offsets").is_boolean()) return bad("offsets", "expected true or false");
    tensor.has_offsets = object.at("offsets").get<bool>();
    return tensor;
  }

  const std::string& origin_;
};

Status check_padding(const SafetensorsFile& file) {
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  for (const TensorView& tensor : file.tensors()) {
    if (!tensor.name.starts_with(padding_prefix)) continue;
    if (std::all_of(tensor.bytes.begin(), tensor.bytes.end(), is_zero)) continue;
    return fail(ErrorCode::bad_input,
                fmt::format("{}: tensor '{}': padding is 0, found other bytes: damaged", file.file().path(),
                            tensor.name),
                remove_hint);
  }
  return {};
}

std::string in_folder(const std::string& package, const char* file) {
  return (fs::path(package) / prepacked_folder / file).string();
}

}  // namespace

std::string to_text(const PrepackedManifest& manifest) {
  Json root;
  root["format_version"] = prepacked_format_version;
  root["layout"] = manifest.layout;
  root["target"] = manifest.target;
  root["file"] = {{"bytes", manifest.file.bytes}, {"checksum", to_hex(manifest.file.checksum)}};
  root["tensors"] = Json::array();
  for (const PrepackedTensor& tensor : manifest.tensors) {
    root["tensors"].push_back({{"name", tensor.name},
                               {"code_bytes", tensor.code_bytes},
                               {"scale_count", tensor.scale_count},
                               {"offsets", tensor.has_offsets},
                               {"checksum", to_hex(tensor.checksum)},
                               {"made_from", to_hex(tensor.made_from)}});
  }
  return seal_manifest(std::move(root));
}

Result<PrepackedManifest> parse_prepacked(std::string_view text, const std::string& origin, bool verify) {
  HEXLM_ASSIGN(const Json root, parse_json(text, origin));
  if (verify && root.is_object() && seal_manifest(root) != text) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: its checksum is not that of its text: damaged or edited", origin),
                remove_hint);
  }
  return PrepackedReader(origin).read(root);
}

std::vector<TensorPlan> tensor_plans(const PrepackedTensor& tensor) {
  std::vector<TensorPlan> plans = {{tensor.name + ".codes", DType::u8, {tensor.code_bytes}},
                                   {tensor.name + ".scales", DType::f16, {tensor.scale_count}}};
  if (tensor.has_offsets) plans.push_back({tensor.name + ".offsets", DType::f16, {tensor.scale_count}});
  return plans;
}

Result<std::optional<Prepacked>> Prepacked::open(const std::string& package_folder, const Manifest& package,
                                                 bool verify) {
  const std::string path = in_folder(package_folder, "manifest.json");
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<Prepacked>();
  HEXLM_ASSIGN(const std::string text, read_file(path, prepacked_manifest_limit));
  HEXLM_ASSIGN(PrepackedManifest manifest, parse_prepacked(text, path, verify));
  HEXLM_ASSIGN(SafetensorsFile file, SafetensorsFile::open(in_folder(package_folder, prepacked_file)));
  Prepacked prepacked(std::move(file));
  prepacked.manifest_ = std::move(manifest);
  const PackageFile& listed = prepacked.manifest_.file;
  const uint64_t header = hash64(prepacked.file_.header());
  const uint64_t bytes = prepacked.file_.file().bytes().size();
  if (bytes != listed.bytes || (verify && header != listed.checksum)) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: the manifest says {} bytes with header {}, the file has {} with {}: damaged",
                            prepacked.file_.file().path(), listed.bytes, to_hex(listed.checksum), bytes,
                            to_hex(header)),
                remove_hint);
  }
  if (verify) HEXLM_TRY(check_padding(prepacked.file_));
  for (const PrepackedTensor& tensor : prepacked.manifest_.tensors)
    HEXLM_TRY(prepacked.add_tensor(tensor, package));
  return std::optional<Prepacked>(std::move(prepacked));
}

Status Prepacked::add_tensor(const PrepackedTensor& tensor, const Manifest& package) {
  const auto bad = [&](std::string_view what) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: tensor '{}': {}", file_.file().path(), tensor.name, what), remove_hint);
  };
  const auto source = std::find_if(package.tensors.begin(), package.tensors.end(),
                                   [&](const PackageTensor& each) { return each.name == tensor.name; });
  if (source == package.tensors.end()) return bad("the package has no such weight");
  if (source->checksum != tensor.made_from) {
    return bad(fmt::format("was packed from a weight with checksum {}, the package's has {}",
                           to_hex(tensor.made_from), to_hex(source->checksum)));
  }
  Entry entry;
  entry.checksum = tensor.checksum;
  const std::array<std::span<const std::byte>*, 3> parts = {&entry.parts.codes, &entry.parts.scales,
                                                            &entry.parts.offsets};
  size_t next = 0;
  for (const TensorPlan& plan : tensor_plans(tensor)) {
    const TensorView* stored = file_.find(plan.name);
    if (stored == nullptr || stored->dtype != plan.dtype || stored->shape != plan.shape)
      return bad(fmt::format("its part '{}' is not in the file as the manifest says", plan.name));
    const auto offset = static_cast<size_t>(stored->bytes.data() - file_.file().bytes().data());
    if (offset % package_alignment != 0) return bad(fmt::format("lies at file offset {}", offset));
    *parts[next++] = stored->bytes;
  }
  entries_.emplace(tensor.name, entry);
  return {};
}

const PackedParts* Prepacked::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second.parts;
}

Status Prepacked::verify(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return {};
  const auto& [parts, expected] = found->second;
  Hasher hasher;
  for (const std::span<const std::byte> part : {parts.codes, parts.scales, parts.offsets})
    hasher.update(part);
  const uint64_t checksum = hasher.digest();
  if (checksum == expected) return {};
  return fail(ErrorCode::bad_input,
              fmt::format("{}: tensor '{}': the manifest has checksum {}, the file's bytes give {}: damaged",
                          file_.file().path(), name, to_hex(expected), to_hex(checksum)),
              remove_hint);
}

}  // namespace hexlm
