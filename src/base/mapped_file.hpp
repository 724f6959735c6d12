#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/error.hpp"

namespace hexlm {

/// A read-only memory map of a whole regular file. Movable; unmaps on destruction. Views into `bytes()`
/// must not outlive it. A zero-byte file maps to an empty span.
class MappedFile {
 public:
  /// Errors: bad_input when the file is missing, not a regular file, or unreadable (the message names it).
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  /// Asks the kernel to read the range ahead.
  void will_need(std::span<const std::byte> range) const;
  /// Drops the range's whole pages from this process's resident set (they stay in the page cache), so that
  /// streaming through a large file keeps memory bounded.
  void release(std::span<const std::byte> range) const;

 private:
  MappedFile(std::string path, const std::byte* data, size_t size);
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hexlm
