#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "formats/tensor.hpp"

namespace hexlm {

/// One memory-mapped .safetensors file, validated whole when opened: 8-byte little-endian header length
/// (1 … 100 MB, within the file), JSON object without duplicate keys or trailing bytes, known dtypes, shapes
/// whose size neither overflows nor disagrees with the offsets, and a data buffer covered without hole,
/// overlap or remainder. Errors: bad_input, naming file, tensor and both values; a Git LFS pointer is named
/// as such with the hint to fetch it.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  const std::vector<TensorView>& tensors() const { return tensors_; }
  /// nullptr when absent.
  const TensorView* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const MappedFile& file() const { return *file_; }
  /// Length field and JSON: everything before the tensors' bytes.
  std::span<const std::byte> header() const { return file_->bytes().first(header_bytes_); }

 private:
  SafetensorsFile() = default;
  std::shared_ptr<MappedFile> file_;
  size_t header_bytes_ = 0;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

/// The tensors of a Hugging Face checkpoint folder: `model.safetensors`, or the shards that
/// `model.safetensors.index.json` lists (each listed tensor must be in the named shard and in no other; a
/// missing or truncated shard is an error naming it).
class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& folder);
  const std::string& folder() const { return folder_; }
  const TensorView* find(std::string_view name) const;
  /// Every tensor, in shard and then file order.
  std::vector<const TensorView*> tensors() const;
  /// The file a tensor lies in, for messages and `release`; nullptr when absent.
  const MappedFile* file_of(std::string_view name) const;

 private:
  std::string folder_;
  std::vector<SafetensorsFile> shards_;
  std::map<std::string, std::pair<size_t, size_t>, std::less<>> index_;
};

/// Describes one tensor before its bytes are written.
struct TensorPlan {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};

/// Writes a safetensors file as a stream: the header is written first from the plan, then each tensor's bytes
/// in plan order through `write`, in as many pieces as the caller likes. With `alignment` > 1 every tensor
/// starts at a multiple of it (relative to the file), and the gaps are covered by U8 tensors named
/// `__padding.N`, so that the file stays valid for strict readers.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(const std::string& path, const std::vector<TensorPlan>& plan,
                                          const std::map<std::string, std::string>& metadata,
                                          size_t alignment);
  /// The next bytes of the current tensor; moves on when it is complete.
  Status write(std::span<const std::byte> bytes);
  /// Errors with runtime when bytes are missing; then fsyncs and renames.
  Status commit();
  /// XXH3-64 of the header.
  uint64_t header_checksum() const { return header_checksum_; }
  /// Of the whole file, padding included.
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  explicit SafetensorsWriter(AtomicFile file) : file_(std::move(file)) {}
  Status finish_complete_tensors();
  AtomicFile file_;
  std::string path_;
  std::vector<std::string> names_;  // of each tensor, for messages
  std::vector<uint64_t> sizes_;     // of each tensor
  std::vector<uint64_t> padding_;   // after each tensor
  uint64_t header_checksum_ = 0;
  uint64_t file_bytes_ = 0;
  size_t current_ = 0;
  uint64_t written_ = 0;
};

/// Name prefix of padding entries.
inline constexpr std::string_view padding_prefix = "__padding.";

}  // namespace hexlm
