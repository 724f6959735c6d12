#pragma once

#include <string>
#include <utility>

#include "base/error.hpp"

namespace hexlm {

/// Owns a POSIX file descriptor; closes it on destruction. -1 owns nothing.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor = -1) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();

  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

/// Opens a regular file for reading. Errors: bad_input when it is missing, not a regular file or unreadable.
Result<FileDescriptor> open_regular_file(const std::string& path);
/// Flushes a folder's entries to disk, so that a rename in it survives a power cut. Best effort.
void sync_folder(const std::string& path);
/// What `errno`'s value means, in words ("No space left on device").
std::string system_reason(int error_number);
/// limit for a full disk, quota, file size or memory limit; runtime for anything else.
ErrorCode write_error_code(int error_number);

}  // namespace hexlm
