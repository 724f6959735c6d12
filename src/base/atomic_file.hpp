#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/file_descriptor.hpp"

namespace hexlm {

/// Writes a file sequentially under `path` + ".tmp-PID", then `commit` fsyncs it and renames it to `path`.
/// Without a commit the destructor removes the temporary file: nothing half-written is left. What a killed
/// process left of the same path is removed first.
/// Errors: limit when the disk is full, runtime for other failures; the message names file, bytes and cause.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  Status commit();
  uint64_t written() const { return written_; }

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor);
  void discard();
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
};

/// A folder built under a temporary sibling name and renamed to `path` by `commit`; removed otherwise, and
/// after a kill by the next one of the same path. With `replace`, an existing folder at `path` is moved aside
/// first and deleted only after the rename succeeded; only a folder that is empty or holds a file named
/// `marker` is replaced, so that a mistyped path costs nothing.
class AtomicFolder {
 public:
  /// Errors: usage when `path` exists and `replace` is false or the folder is not one to replace; limit or
  /// runtime when it cannot be created.
  static Result<AtomicFolder> create(const std::string& path, bool replace, const std::string& marker);
  AtomicFolder(AtomicFolder&& other) noexcept;
  AtomicFolder& operator=(AtomicFolder&& other) noexcept;
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  /// Where to write files before the commit.
  const std::string& working_path() const { return temporary_; }
  Status commit();

 private:
  AtomicFolder(std::string path, std::string temporary, bool replace);
  void discard();
  std::string path_;
  std::string temporary_;
  FileDescriptor in_use_;
  bool replace_ = false;
};

Status write_file_atomically(const std::string& path, std::string_view content);
/// Reads a whole regular file of at most `limit` bytes. Errors: bad_input (missing, not a file), limit.
Result<std::string> read_file(const std::string& path, uint64_t limit = uint64_t{1} << 30);

}  // namespace hexlm
