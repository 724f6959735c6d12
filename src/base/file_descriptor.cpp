#include "base/file_descriptor.hpp"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace hexlm {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string system_reason(int error_number) { return std::generic_category().message(error_number); }

ErrorCode write_error_code(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return ErrorCode::limit;
    default:
      return ErrorCode::runtime;
  }
}

Result<FileDescriptor> open_regular_file(const std::string& path) {
  // O_NONBLOCK keeps a named pipe without a writer from blocking the open; it changes nothing for files.
  FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor.valid()) {
    const int reason = errno;
    return fail(ErrorCode::bad_input, fmt::format("{}: cannot be opened: {}", path, system_reason(reason)),
                reason == ENOENT ? "check the path" : "");
  }
  struct stat status{};
  if (::fstat(descriptor.get(), &status) != 0) {
    return fail(ErrorCode::bad_input, fmt::format("{}: cannot be examined: {}", path, system_reason(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::bad_input, fmt::format("{}: expected a regular file, got {}", path,
                                                  S_ISDIR(status.st_mode) ? "a folder" : "a special file"));
  }
  return descriptor;
}

void sync_folder(const std::string& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid()) ::fsync(folder.get());
}

}  // namespace hexlm
