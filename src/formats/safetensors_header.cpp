#include "formats/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <simdjson.h>
#include <tuple>
#include <utility>

#include "base/text.hpp"
#include "formats/tensor_size.hpp"

namespace hexlm {
namespace {

constexpr size_t length_bytes = 8;
constexpr std::string_view lfs_signature = "version https://git-lfs.github.com/spec/";
constexpr const char* broken_hint = "download or export the file again";

/// One header entry, its range relative to the start of the data.
struct Entry {
  TensorView tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// Reads the entries of one header. A class for what every message needs: the file and the tensor.
class HeaderReader {
 public:
  HeaderReader(const std::string& origin, std::span<const std::byte> data) : origin_(origin), data_(data) {}

  Result<SafetensorsContent> read(std::string_view header);

 private:
  tl::unexpected<Error> bad(std::string_view what) const {
    return fail(ErrorCode::bad_input, fmt::format("{}: {}", origin_, what), broken_hint);
  }
  tl::unexpected<Error> bad_tensor(std::string_view name, std::string_view what) const {
    return bad(fmt::format("tensor '{}': {}", name, what));
  }
  Status read_metadata(const simdjson::dom::element& value,
                       std::map<std::string, std::string>& metadata) const;
  Result<Entry> read_entry(std::string_view name, const simdjson::dom::element& value) const;
  Status read_field(Entry& entry, std::string_view field, const simdjson::dom::element& value) const;
  Status read_shape(Entry& entry, const simdjson::dom::element& value) const;
  Status read_offsets(Entry& entry, const simdjson::dom::element& value) const;
  Status check_size(const Entry& entry) const;
  Status check_unique(const std::vector<Entry>& entries) const;
  Status check_coverage(const std::vector<Entry>& entries) const;

  const std::string& origin_;
  std::span<const std::byte> data_;
};

Status HeaderReader::read_metadata(const simdjson::dom::element& value,
                                   std::map<std::string, std::string>& metadata) const {
  simdjson::dom::object object;
  if (value.get(object) != simdjson::SUCCESS) return bad("__metadata__: expected an object of strings");
  for (const simdjson::dom::key_value_pair member : object) {
    std::string_view text;
    if (member.value.get(text) != simdjson::SUCCESS) {
      return bad(fmt::format("__metadata__ '{}': expected a string", member.key));
    }
    if (!metadata.emplace(member.key, text).second) {
      return bad(fmt::format("__metadata__: the key '{}' appears twice", member.key));
    }
  }
  return {};
}

Status HeaderReader::read_shape(Entry& entry, const simdjson::dom::element& value) const {
  simdjson::dom::array dims;
  if (value.get(dims) != simdjson::SUCCESS) {
    return bad_tensor(entry.tensor.name, "shape: expected an array of integers");
  }
  for (const simdjson::dom::element item : dims) {
    uint64_t dim = 0;
    if (item.get(dim) != simdjson::SUCCESS) {
      return bad_tensor(entry.tensor.name, "shape: expected integers of at least 0");
    }
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return bad_tensor(entry.tensor.name, fmt::format("shape: dimension {} exceeds 2^63-1", dim));
    }
    entry.tensor.shape.push_back(static_cast<int64_t>(dim));
  }
  return {};
}

Status HeaderReader::read_offsets(Entry& entry, const simdjson::dom::element& value) const {
  simdjson::dom::array offsets;
  if (value.get(offsets) != simdjson::SUCCESS || offsets.size() != 2 ||
      offsets.at(0).get(entry.begin) != simdjson::SUCCESS ||
      offsets.at(1).get(entry.end) != simdjson::SUCCESS) {
    return bad_tensor(entry.tensor.name, "data_offsets: expected two integers of at least 0");
  }
  if (entry.begin > entry.end) {
    return bad_tensor(entry.tensor.name,
                      fmt::format("data_offsets [{}, {}] end before they begin", entry.begin, entry.end));
  }
  return {};
}

/// Fields beyond the three of the format are tolerated, as the reference reader does.
Status HeaderReader::read_field(Entry& entry, std::string_view field,
                                const simdjson::dom::element& value) const {
  if (field == "shape") return read_shape(entry, value);
  if (field == "data_offsets") return read_offsets(entry, value);
  if (field != "dtype") return {};
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return bad_tensor(entry.tensor.name, "dtype: expected a string");
  const std::optional<DType> dtype = parse_dtype(text);
  if (!dtype) return bad_tensor(entry.tensor.name, fmt::format("dtype '{}' is unknown", text));
  entry.tensor.dtype = *dtype;
  return {};
}

Result<Entry> HeaderReader::read_entry(std::string_view name, const simdjson::dom::element& value) const {
  simdjson::dom::object object;
  Entry entry;
  entry.tensor.name = name;
  if (value.get(object) != simdjson::SUCCESS) return bad_tensor(name, "expected an object");
  constexpr std::array<std::string_view, 3> required = {"dtype", "shape", "data_offsets"};
  std::array<bool, required.size()> seen = {};
  for (const simdjson::dom::key_value_pair member : object) {
    const auto found = std::find(required.begin(), required.end(), member.key);
    if (found != required.end() && std::exchange(seen[static_cast<size_t>(found - required.begin())], true)) {
      return bad_tensor(name, fmt::format("the field '{}' appears twice", member.key));
    }
    HEXLM_TRY(read_field(entry, member.key, member.value));
  }
  for (size_t i = 0; i < required.size(); ++i) {
    if (!seen[i]) return bad_tensor(name, fmt::format("the field '{}' is missing", required[i]));
  }
  HEXLM_TRY(check_size(entry));
  return entry;
}

Status HeaderReader::check_size(const Entry& entry) const {
  const TensorView& tensor = entry.tensor;
  const std::optional<int64_t> elements = element_count(tensor.shape);
  const std::optional<int64_t> bytes = elements ? byte_count(tensor.dtype, *elements) : std::nullopt;
  const std::string description = fmt::format("{} {}", to_string(tensor.dtype), format_shape(tensor.shape));
  if (!bytes) {
    return bad_tensor(tensor.name,
                      fmt::format("the size of {} overflows or is no whole number of bytes", description));
  }
  if (static_cast<uint64_t>(*bytes) != entry.end - entry.begin) {
    return bad_tensor(tensor.name,
                      fmt::format("{} needs {} bytes, data_offsets [{}, {}] give {}", description, *bytes,
                                  entry.begin, entry.end, entry.end - entry.begin));
  }
  return {};
}

Status HeaderReader::check_unique(const std::vector<Entry>& entries) const {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const Entry& entry : entries) names.emplace_back(entry.tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return bad_tensor(*twice, "appears twice in the header");
  return {};
}

/// `entries` in data order: each must begin where the one before ends, and the last must end with the file.
Status HeaderReader::check_coverage(const std::vector<Entry>& entries) const {
  uint64_t position = 0;
  std::string_view previous = "the start of the data";
  for (const Entry& entry : entries) {
    if (entry.begin != position) {
      return bad_tensor(entry.tensor.name,
                        fmt::format("begins at data offset {}, expected {}, where {} ends: {}", entry.begin,
                                    position, previous, entry.begin < position ? "overlap" : "hole"));
    }
    position = entry.end;
    previous = entry.tensor.name;
  }
  if (position > data_.size()) {
    const auto first = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& entry) { return entry.end > data_.size(); });
    return bad_tensor(
        first->tensor.name,
        fmt::format("ends at data offset {}, but the file has only {} of {} data bytes: truncated",
                    first->end, data_.size(), position));
  }
  if (position < data_.size()) {
    return bad(fmt::format("{} data bytes expected, got {}: {} bytes belong to no tensor", position,
                           data_.size(), data_.size() - position));
  }
  return {};
}

Result<SafetensorsContent> HeaderReader::read(std::string_view header) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(header.data(), header.size()).get(root); error != simdjson::SUCCESS) {
    if (error == simdjson::MEMALLOC) {
      return fail(ErrorCode::limit, fmt::format("{}: memory ran out while the header was read", origin_),
                  "free memory");
    }
    return bad(fmt::format("the header is not valid JSON: {}", simdjson::error_message(error)));
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) return bad("the header is not a JSON object");

  SafetensorsContent content;
  std::vector<Entry> entries;
  bool has_metadata = false;
  for (const simdjson::dom::key_value_pair member : object) {
    if (member.key == safetensors_metadata_key) {
      if (std::exchange(has_metadata, true)) return bad("__metadata__ appears twice in the header");
      HEXLM_TRY(read_metadata(member.value, content.metadata));
    } else {
      HEXLM_ASSIGN(Entry entry, read_entry(member.key, member.value));
      entries.push_back(std::move(entry));
    }
  }
  HEXLM_TRY(check_unique(entries));
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  HEXLM_TRY(check_coverage(entries));
  content.tensors.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.tensor.bytes = data_.subspan(entry.begin, entry.end - entry.begin);
    content.tensors.push_back(std::move(entry.tensor));
  }
  return content;
}

uint64_t read_little_endian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = length_bytes; i-- > 0;) value = value << 8 | static_cast<uint64_t>(bytes[i]);
  return value;
}

}  // namespace

Result<SafetensorsContent> parse_safetensors(std::span<const std::byte> file, const std::string& origin) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with(lfs_signature)) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: is a Git LFS pointer of {} bytes, not the tensors it stands for", origin,
                            file.size()),
                "fetch the file with `git lfs pull`, or download it again");
  }
  const auto bad = [&](std::string_view what) {
    return fail(ErrorCode::bad_input, fmt::format("{}: {}", origin, what), broken_hint);
  };
  if (file.size() < length_bytes) {
    return bad(
        fmt::format("has {} bytes, expected at least {}: no safetensors file", file.size(), length_bytes));
  }
  const uint64_t length = read_little_endian(file);
  if (length == 0 || length > safetensors_header_limit) {
    return bad(fmt::format("header length {}, expected 1 to {}: no safetensors file", length,
                           safetensors_header_limit));
  }
  if (length > file.size() - length_bytes) {
    return bad(fmt::format("header length {}, but only {} bytes follow: truncated", length,
                           file.size() - length_bytes));
  }
  if (text[length_bytes] != '{') return bad("the header is not a JSON object");
  HEXLM_ASSIGN(
      SafetensorsContent content,
      HeaderReader(origin, file.subspan(length_bytes + length)).read(text.substr(length_bytes, length)));
  content.header_bytes = length_bytes + static_cast<size_t>(length);
  return content;
}

}  // namespace hexlm
