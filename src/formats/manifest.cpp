#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <utility>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "formats/json.hpp"
#include "formats/package.hpp"
#include "formats/tensor_size.hpp"

namespace hexlm {
namespace {

constexpr const char* broken_hint = "export the package again";
constexpr size_t checksum_digits = 16;

/// Reads one manifest. A class for what every message needs: the file and the place within it.
class ManifestReader {
 public:
  explicit ManifestReader(const std::string& origin) : origin_(origin) {}
  Result<Manifest> read(const Json& root);

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
  if (tensor.file.find_first_of("/\\") != std::string::npos || tensor.file.find('\0') != std::string::npos ||
      !tensor.file.ends_with(".safetensors")) {
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
  uint64_t expected = 0;
  for (const TensorPlan& part : tensor_plans(tensor)) {
    expected += static_cast<uint64_t>(*byte_count(part.dtype, *element_count(part.shape)));
  }
  if (tensor.stored_bytes != expected) {
    return bad("stored_bytes", fmt::format("{} {} takes {} bytes, got {}", to_string(tensor.codec),
                                           format_shape(tensor.shape), expected, tensor.stored_bytes));
  }
  return {};
}

Result<Manifest> ManifestReader::read(const Json& root) {
  static const std::array<std::string, 5> fields = {"format_version", "architecture", "configuration",
                                                    "provenance", "tensors"};
  HEXLM_TRY(check_version(root));
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
  const Json& tensors = root.at("tensors");
  if (!tensors.is_array())
    return bad("tensors", fmt::format("expected an array, got {}", tensors.type_name()));
  std::set<std::string> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    place_ = fmt::format("tensors[{}].", i);
    HEXLM_ASSIGN(PackageTensor tensor, read_tensor(tensors[i]));
    if (!names.insert(tensor.name).second)
      return bad("name", fmt::format("'{}' is listed twice", tensor.name));
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

Result<Manifest> parse_manifest(std::string_view text, const std::string& origin) {
  HEXLM_ASSIGN(const Json root, parse_json(text, origin));
  return ManifestReader(origin).read(root);
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
  const DType scales = tensor.codec.wide_scales ? DType::f32 : DType::f16;
  std::vector<TensorPlan> plans = {
      {tensor.name + ".codes", DType::u8, {rows, tensor.codec.row_bytes(columns)}},
      {tensor.name + ".scales", scales, {rows, groups}}};
  if (!tensor.codec.symmetric) plans.push_back({tensor.name + ".offsets", scales, {rows, groups}});
  return plans;
}

}  // namespace hexlm
