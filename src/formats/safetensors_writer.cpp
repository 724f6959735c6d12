#include <algorithm>
#include <array>
#include <bit>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "formats/json.hpp"
#include "formats/safetensors.hpp"
#include "formats/safetensors_header.hpp"
#include "formats/tensor_size.hpp"

namespace hexlm {
namespace {

/// The data start is aligned to at least this, as other writers of the format do.
constexpr size_t least_alignment = 8;
constexpr size_t most_alignment = size_t{1} << 20;

/// A JSON string literal. The text must be valid UTF-8.
std::string json_string(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Collects the header's entries and the layout of the data behind it.
class Layout {
 public:
  explicit Layout(size_t alignment) : alignment_(std::max<size_t>(alignment, 1)) {}

  Status add(const TensorPlan& tensor);
  /// Covers the gap up to the next multiple of the alignment with a padding entry. Returns its size.
  Result<uint64_t> pad();
  /// Length field and header, filled with spaces so that the data starts aligned.
  std::string header(const std::map<std::string, std::string>& metadata) const;
  std::vector<uint64_t> sizes;
  uint64_t data_bytes() const { return position_; }

 private:
  Status append(std::string_view name, DType dtype, std::span<const int64_t> shape, uint64_t bytes);

  uint64_t alignment_;
  uint64_t position_ = 0;
  size_t paddings_ = 0;
  std::set<std::string, std::less<>> names_;
  std::string entries_;
};

tl::unexpected<Error> bad_plan(std::string_view name, std::string_view what) {
  return fail(ErrorCode::runtime, fmt::format("tensor '{}' cannot be written: {}", name, what));
}

Status Layout::append(std::string_view name, DType dtype, std::span<const int64_t> shape, uint64_t bytes) {
  uint64_t end = 0;
  if (__builtin_add_overflow(position_, bytes, &end) || end > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return bad_plan(name, fmt::format("{} bytes after offset {} overflow", bytes, position_));
  }
  entries_ += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          entries_.empty() ? "" : ",", json_string(name), to_string(dtype),
                          fmt::join(shape, ","), position_, end);
  position_ = end;
  return {};
}

Status Layout::add(const TensorPlan& tensor) {
  if (!is_valid_utf8(tensor.name)) return bad_plan("?", "its name is not valid UTF-8");
  if (tensor.name == safetensors_metadata_key || tensor.name.starts_with(padding_prefix)) {
    return bad_plan(tensor.name, "the name is reserved");
  }
  if (!names_.insert(tensor.name).second) return bad_plan(tensor.name, "the name is planned twice");
  const std::optional<int64_t> elements = element_count(tensor.shape);
  const std::optional<int64_t> bytes = elements ? byte_count(tensor.dtype, *elements) : std::nullopt;
  if (!bytes) {
    return bad_plan(tensor.name, fmt::format("the size of {} {} overflows or is no whole number of bytes",
                                             to_string(tensor.dtype), format_shape(tensor.shape)));
  }
  sizes.push_back(static_cast<uint64_t>(*bytes));
  return append(tensor.name, tensor.dtype, tensor.shape, static_cast<uint64_t>(*bytes));
}

Result<uint64_t> Layout::pad() {
  const uint64_t gap = (alignment_ - position_ % alignment_) % alignment_;
  if (gap == 0) return 0;
  const std::array<int64_t, 1> shape = {static_cast<int64_t>(gap)};
  HEXLM_TRY(append(fmt::format("{}{}", padding_prefix, paddings_++), DType::u8, shape, gap));
  return gap;
}

std::string Layout::header(const std::map<std::string, std::string>& metadata) const {
  std::string json = "{";
  if (!metadata.empty()) {
    json += fmt::format("\"{}\":{{", safetensors_metadata_key);
    const char* separator = "";
    for (const auto& [key, value] : metadata) {
      json += fmt::format("{}{}:{}", std::exchange(separator, ","), json_string(key), json_string(value));
    }
    json += entries_.empty() ? "}" : "},";
  }
  json += entries_ + "}";
  constexpr size_t length_bytes = 8;
  const size_t alignment = std::max<size_t>(alignment_, least_alignment);
  const size_t total = (length_bytes + json.size() + alignment - 1) / alignment * alignment;
  json.append(total - length_bytes - json.size(), ' ');
  std::string header;
  for (size_t i = 0; i < length_bytes; ++i) header += static_cast<char>(json.size() >> (8 * i) & 0xffU);
  return header + json;
}

Status write_zeros(AtomicFile& file, uint64_t count) {
  static constexpr std::array<std::byte, 4096> zeros = {};
  while (count > 0) {
    const auto piece = static_cast<size_t>(std::min<uint64_t>(count, zeros.size()));
    HEXLM_TRY(file.write(std::span(zeros).first(piece)));
    count -= piece;
  }
  return {};
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    const std::vector<TensorPlan>& plan,
                                                    const std::map<std::string, std::string>& metadata,
                                                    size_t alignment) {
  if (alignment > most_alignment || (alignment > 1 && !std::has_single_bit(alignment))) {
    return fail(ErrorCode::runtime, fmt::format("{}: alignment {}, expected a power of two up to {}", path,
                                                alignment, most_alignment));
  }
  for (const auto& [key, value] : metadata) {
    if (!is_valid_utf8(key) || !is_valid_utf8(value)) {
      return fail(ErrorCode::runtime, fmt::format("{}: the metadata is not valid UTF-8", path));
    }
  }
  Layout layout(alignment);
  std::vector<uint64_t> padding;
  std::vector<std::string> names;
  for (const TensorPlan& tensor : plan) {
    HEXLM_TRY(layout.add(tensor));
    names.push_back(tensor.name);
    const bool last = names.size() == plan.size();
    HEXLM_ASSIGN(const uint64_t gap, last ? Result<uint64_t>(0) : layout.pad());
    padding.push_back(gap);
  }
  const std::string header = layout.header(metadata);
  if (header.size() > safetensors_header_limit) {
    return fail(ErrorCode::limit,
                fmt::format("{}: the header of {} tensors takes {} bytes, the format allows {}", path,
                            plan.size(), header.size(), safetensors_header_limit));
  }
  HEXLM_ASSIGN(AtomicFile file, AtomicFile::create(path));
  SafetensorsWriter writer(std::move(file));
  writer.path_ = path;
  writer.names_ = std::move(names);
  writer.sizes_ = std::move(layout.sizes);
  writer.padding_ = std::move(padding);
  writer.header_checksum_ = hash64(std::as_bytes(std::span(header)));
  writer.file_bytes_ = header.size() + layout.data_bytes();
  HEXLM_TRY(writer.file_.write(header));
  HEXLM_TRY(writer.finish_complete_tensors());
  return writer;
}

/// Moves past every tensor that has all its bytes (those of size 0 at once), writing the padding behind it.
Status SafetensorsWriter::finish_complete_tensors() {
  while (current_ < sizes_.size() && written_ == sizes_[current_]) {
    HEXLM_TRY(write_zeros(file_, padding_[current_]));
    ++current_;
    written_ = 0;
  }
  return {};
}

Status SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  if (current_ == sizes_.size()) {
    return fail(ErrorCode::runtime,
                fmt::format("{}: {} bytes after the last of {} tensors", path_, bytes.size(), sizes_.size()));
  }
  if (bytes.size() > sizes_[current_] - written_) {
    return fail(ErrorCode::runtime, fmt::format("{}: tensor '{}': {} bytes planned, got {}", path_,
                                                names_[current_], sizes_[current_], written_ + bytes.size()));
  }
  HEXLM_TRY(file_.write(bytes));
  written_ += bytes.size();
  return finish_complete_tensors();
}

Status SafetensorsWriter::commit() {
  if (current_ != sizes_.size()) {
    return fail(ErrorCode::runtime, fmt::format("{}: tensor '{}': {} bytes planned, got {}", path_,
                                                names_[current_], sizes_[current_], written_));
  }
  return file_.commit();
}

}  // namespace hexlm
