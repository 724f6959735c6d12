#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "formats/json.hpp"
#include "formats/package.hpp"
#include "formats/tensor_size.hpp"

namespace hexlm {
namespace {

constexpr const char* broken_hint = "export the package again";
constexpr size_t checksum_digits = 16;
constexpr const char* unsealed_digits = "0000000000000000";
/// A manifest holds about 300 bytes a tensor and the source's configuration.
constexpr uint64_t manifest_limit = uint64_t{256} << 20;

/// The checksum of a manifest's text: its last 16 digits between quotes read as zeros.
uint64_t text_checksum(std::string_view text, std::string_view digits) {
  const size_t at = text.rfind(digits);
  if (at == std::string_view::npos) return 0;
  Hasher hasher;
  hasher.update(std::as_bytes(std::span(text.substr(0, at))));
  hasher.update(std::as_bytes(std::span(unsealed_digits, digits.size())));
  hasher.update(std::as_bytes(std::span(text.substr(at + digits.size()))));
  return hasher.digest();
}

bool is_plain_name(std::string_view name) {
  return name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos && name != "." &&
         name != "..";
}

/// Reads one manifest. A class for what every message needs: the file and the place within it.
class ManifestReader {
 public:
  explicit ManifestReader(const std::string& origin) : origin_(origin) {}
  /// With `text`, its checksum is compared before its content is judged.
  Result<Manifest> read(const Json& root, std::optional<std::string_view> text);

 private:
  tl::unexpected<Error> bad(std::string_view field, std::string_view what) const {
    return fail(ErrorCode::bad_input, fmt::format("{}: {}{}: {}", origin_, place_, field, what), broken_hint);
  }
  Status check_keys(const Json& object, std::span<const std::string> known) const;
  Status check_version(const Json& root) const;
  Result<std::string> text(const Json& object, const char* key) const;
  Result<uint64_t> natural(const Json& object, const char* key) const;
  Result<std::vector<int64_t>> shape(const Json& object) const;
  Result<uint64_t> checksum(const Json& object) const;
  Status check_seal(const Json& root, std::string_view text) const;
  Result<PackageFile> read_file_entry(const Json& object) const;
  Result<PackageTensor> read_tensor(const Json& object) const;
  Status check_tensor(const PackageTensor& tensor) const;

  const std::string& origin_;
  std::string place_;
};

/// Every known key must be there and no other may be.
Status ManifestReader::check_keys(const Json& object, std::span<const std::string> known) const {
  if (!object.is_object()) return bad("value", fmt::format("expected an object, got {}", object.type_name()));
  for (const std::string& key : known) {
    if (!object.contains(key)) return bad(key, "is missing");
  }
  for (const auto& member : object.items()) {
    if (std::find(known.begin(), known.end(), member.key()) == known.end()) {
      return bad(member.key(),
                 fmt::format("is unknown; the nearest field is {}", nearest(member.key(), known)));
    }
  }
  return {};
}

/// Before anything else: a later version may differ in everything but this field.
Status ManifestReader::check_version(const Json& root) const {
  const auto found = root.is_object() ? root.find("format_version") : root.end();
  if (found == root.end()) return bad("format_version", "is missing");
  if (!found->is_number_unsigned() || found->get<uint64_t>() == 0) {
    return bad("format_version", fmt::format("expected an integer of at least 1, got {}", found->dump()));
  }
  const auto version = found->get<uint64_t>();
  if (version > uint64_t{package_format_version}) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: the package has format version {}, this program reads up to version {}",
                            origin_, version, package_format_version),
                "use a newer hexlm, or export the package again with this one");
  }
  return {};
}

Result<std::string> ManifestReader::text(const Json& object, const char* key) const {
  const Json& value = object.at(key);
  if (!value.is_string()) return bad(key, fmt::format("expected a string, got {}", value.type_name()));
  auto content = value.get<std::string>();
  if (content.empty()) return bad(key, "is empty");
  return content;
}

Result<uint64_t> ManifestReader::natural(const Json& object, const char* key) const {
  const Json& value = object.at(key);
  if (!value.is_number_unsigned()) {
    return bad(key, fmt::format("expected an integer of at least 0, got {}",
                                value.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  return value.get<uint64_t>();
}

Result<std::vector<int64_t>> ManifestReader::shape(const Json& object) const {
  const Json& value = object.at("shape");
  if (!value.is_array()) return bad("shape", fmt::format("expected an array, got {}", value.type_name()));
  std::vector<int64_t> dims;
  for (const Json& dim : value) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return bad("shape", fmt::format("expected integers from 0 to 2^63-1, got {}",
                                      value.dump(-1, ' ', false, Json::error_handler_t::replace)));
    }
    dims.push_back(dim.get<int64_t>());
  }
  return dims;
}

Result<uint64_t> ManifestReader::checksum(const Json& object) const {
  HEXLM_ASSIGN(const std::string digits, text(object, "checksum"));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() != checksum_digits || error != std::errc() || to_hex(value) != digits) {
    return bad("checksum",
               fmt::format("expected {} lower-case hexadecimal digits, got '{}'", checksum_digits, digits));
  }
  return value;
}

Result<PackageTensor> ManifestReader::read_tensor(const Json& object) const {
  static const std::array<std::string, 7> fields = {"name",         "file",     "codec",         "shape",
                                                    "stored_bytes", "checksum", "relative_error"};
  HEXLM_TRY(check_keys(object, fields));
  PackageTensor tensor;
  HEXLM_ASSIGN(tensor.name, text(object, "name"));
  HEXLM_ASSIGN(tensor.file, text(object, "file"));
  HEXLM_ASSIGN(const std::string codec_text, text(object, "codec"));
  auto codec = parse_codec(codec_text);
  if (!codec) return bad("codec", codec.error().message);
  tensor.codec = *codec;
  HEXLM_ASSIGN(tensor.shape, shape(object));
  HEXLM_ASSIGN(tensor.stored_bytes, natural(object, "stored_bytes"));
  HEXLM_ASSIGN(tensor.checksum, checksum(object));
  const Json& relative_error = object.at("relative_error");
  if (!relative_error.is_number()) {
    return bad("relative_error",
               fmt::format("expected a number, got {}",
                           relative_error.dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  tensor.relative_error = relative_error.get<double>();
  HEXLM_TRY(check_tensor(tensor));
  return tensor;
}

Status ManifestReader::check_tensor(const PackageTensor& tensor) const {
  if (tensor.name.starts_with(padding_prefix))
    return bad("name", fmt::format("'{}' is reserved", tensor.name));
  if (!is_plain_name(tensor.file) || !tensor.file.ends_with(".safetensors")) {
    return bad("file", fmt::format("expected the plain name of a .safetensors file, got '{}'", tensor.file));
  }
  if (!std::isfinite(tensor.relative_error) || tensor.relative_error < 0) {
    return bad("relative_error",
               fmt::format("expected a finite number of at least 0, got {}", tensor.relative_error));
  }
  const std::optional<int64_t> elements = element_count(tensor.shape);
  // 64 bits: no element takes more, so that every size computed below fits as well.
  if (!elements || !byte_count(DType::u64, *elements)) {
    return bad("shape", fmt::format("the size of {} overflows", format_shape(tensor.shape)));
  }
  if (!tensor.codec.is_float() && (tensor.shape.size() != 2 || *elements == 0)) {
    return bad("shape", fmt::format("codec {} stores matrices of at least one element, got shape {}",
                                    to_string(tensor.codec), format_shape(tensor.shape)));
  }
  const uint64_t expected = stored_bytes(tensor.codec, tensor.shape);
  if (tensor.stored_bytes != expected) {
    return bad("stored_bytes", fmt::format("{} {} takes {} bytes, got {}", to_string(tensor.codec),
                                           format_shape(tensor.shape), expected, tensor.stored_bytes));
  }
  return {};
}

Status ManifestReader::check_seal(const Json& root, std::string_view text) const {
  if (!root.contains("checksum")) return bad("checksum", "is missing");
  HEXLM_ASSIGN(const uint64_t expected, checksum(root));
  const uint64_t found = text_checksum(text, to_hex(expected));
  if (found == expected) return {};
  return bad("checksum", fmt::format("is {}, the file's bytes give {}: damaged or edited", to_hex(expected),
                                     to_hex(found)));
}

Result<PackageFile> ManifestReader::read_file_entry(const Json& object) const {
  static const std::array<std::string, 3> fields = {"name", "bytes", "checksum"};
  HEXLM_TRY(check_keys(object, fields));
  PackageFile file;
  HEXLM_ASSIGN(file.name, text(object, "name"));
  HEXLM_ASSIGN(file.bytes, natural(object, "bytes"));
  HEXLM_ASSIGN(file.checksum, checksum(object));
  if (!is_plain_name(file.name) || file.name == "manifest.json" || file.name == "config.json") {
    return bad("name",
               fmt::format("expected the plain name of a file that is not edited, got '{}'", file.name));
  }
  return file;
}

Result<Manifest> ManifestReader::read(const Json& root, std::optional<std::string_view> content) {
  static const std::array<std::string, 7> fields = {
      "format_version", "architecture", "configuration", "provenance", "files", "tensors", "checksum"};
  HEXLM_TRY(check_version(root));
  if (content) HEXLM_TRY(check_seal(root, *content));
  HEXLM_TRY(check_keys(root, fields));
  Manifest manifest;
  manifest.format_version = root.at("format_version").get<int>();
  HEXLM_ASSIGN(manifest.architecture, text(root, "architecture"));
  for (const char* key : {"configuration", "provenance"}) {
    if (!root.at(key).is_object())
      return bad(key, fmt::format("expected an object, got {}", root.at(key).type_name()));
  }
  manifest.configuration = root.at("configuration");
  manifest.provenance = root.at("provenance");
  for (const char* key : {"files", "tensors"}) {
    if (!root.at(key).is_array())
      return bad(key, fmt::format("expected an array, got {}", root.at(key).type_name()));
  }
  std::set<std::string, std::less<>> file_names;
  for (size_t i = 0; i < root.at("files").size(); ++i) {
    place_ = fmt::format("files[{}].", i);
    HEXLM_ASSIGN(PackageFile file, read_file_entry(root.at("files")[i]));
    if (!file_names.insert(file.name).second)
      return bad("name", fmt::format("'{}' is listed twice", file.name));
    manifest.files.push_back(std::move(file));
  }
  const Json& tensors = root.at("tensors");
  std::set<std::string> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    place_ = fmt::format("tensors[{}].", i);
    HEXLM_ASSIGN(PackageTensor tensor, read_tensor(tensors[i]));
    if (!names.insert(tensor.name).second)
      return bad("name", fmt::format("'{}' is listed twice", tensor.name));
    if (!file_names.contains(tensor.file))
      return bad("file", fmt::format("'{}' is not among the manifest's files", tensor.file));
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

}  // namespace

nlohmann::ordered_json to_json(const Manifest& manifest) {
  Json root;
  root["format_version"] = manifest.format_version;
  root["architecture"] = manifest.architecture;
  root["configuration"] = manifest.configuration;
  root["provenance"] = manifest.provenance;
  Json files = Json::array();
  for (const PackageFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"checksum", to_hex(file.checksum)}});
  }
  root["files"] = std::move(files);
  Json tensors = Json::array();
  for (const PackageTensor& tensor : manifest.tensors) {
    Json entry;
    entry["name"] = tensor.name;
    entry["file"] = tensor.file;
    entry["codec"] = to_string(tensor.codec);
    entry["shape"] = tensor.shape;
    entry["stored_bytes"] = tensor.stored_bytes;
    entry["checksum"] = to_hex(tensor.checksum);
    entry["relative_error"] = tensor.relative_error;
    tensors.push_back(std::move(entry));
  }
  root["tensors"] = std::move(tensors);
  return root;
}

std::string seal_manifest(Json root) {
  root.erase("checksum");
  root["checksum"] = unsealed_digits;
  std::string text = root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  const size_t at = text.rfind(unsealed_digits);
  return text.replace(at, checksum_digits, to_hex(hash64(std::as_bytes(std::span(text)))));
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& origin, bool verify) {
  HEXLM_ASSIGN(const Json root, parse_json(text, origin));
  return ManifestReader(origin).read(root, verify ? std::optional(text) : std::nullopt);
}

Result<Manifest> read_manifest(const std::string& folder, bool verify) {
  const std::string path = (std::filesystem::path(folder) / "manifest.json").string();
  HEXLM_ASSIGN(const std::string text, read_file(path, manifest_limit));
  return parse_manifest(text, path, verify);
}

std::vector<TensorPlan> tensor_plans(const PackageTensor& tensor) {
  switch (tensor.codec.kind) {
    case Codec::Kind::f32:
      return {{tensor.name, DType::f32, tensor.shape}};
    case Codec::Kind::f16:
      return {{tensor.name, DType::f16, tensor.shape}};
    case Codec::Kind::bf16:
      return {{tensor.name, DType::bf16, tensor.shape}};
    case Codec::Kind::integer:
      break;
  }
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  const int64_t columns = tensor.shape.size() < 2 ? 1 : tensor.shape[1];
  const int64_t groups = tensor.codec.groups(columns);
  if (tensor.codec.is_two_level()) {
    return {{tensor.name + ".codes", DType::u8, {rows, tensor.codec.row_bytes(columns)}},
            {tensor.name + ".group_scales", DType::u8, {rows, tensor.codec.scale_row_bytes(columns)}},
            {tensor.name + ".scales", DType::f16, {rows, 1}}};
  }
  const DType scales = tensor.codec.wide_scales ? DType::f32 : DType::f16;
  std::vector<TensorPlan> plans = {
      {tensor.name + ".codes", DType::u8, {rows, tensor.codec.row_bytes(columns)}},
      {tensor.name + ".scales", scales, {rows, groups}}};
  if (!tensor.codec.symmetric) plans.push_back({tensor.name + ".offsets", scales, {rows, groups}});
  return plans;
}

uint64_t stored_bytes(const Codec& codec, const std::vector<int64_t>& shape) {
  PackageTensor tensor;
  tensor.codec = codec;
  tensor.shape = shape;
  uint64_t bytes = 0;
  for (const TensorPlan& part : tensor_plans(tensor)) {
    bytes += static_cast<uint64_t>(byte_count(part.dtype, element_count(part.shape).value_or(0)).value_or(0));
  }
  return bytes;
}

}  // namespace hexlm
