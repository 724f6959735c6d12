#include "base/atomic_file.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/file_descriptor.hpp"
#include "base/stale_files.hpp"
#include "base/text.hpp"

namespace hexlm {
namespace {

/// One write call moves at most this much, so that a signal is noticed between calls.
constexpr size_t largest_write = size_t{64} << 20;

std::string parent_folder(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

tl::unexpected<Error> write_failure(const std::string& path, std::string_view action, uint64_t written,
                                    int reason) {
  const ErrorCode code = write_error_code(reason);
  return fail(code, fmt::format("{}: {} after {} bytes: {}", path, action, written, system_reason(reason)),
              code == ErrorCode::limit ? "free disk space or write to another disk" : "");
}

}  // namespace

AtomicFile::AtomicFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      written_(other.written_) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    discard();
    path_ = std::move(other.path_);
    temporary_ = std::move(other.temporary_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    written_ = other.written_;
  }
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
  descriptor_ = -1;
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return fail(ErrorCode::runtime, fmt::format("{}: expected a file name, got a folder", path));
  }
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return fail(ErrorCode::usage,
                fmt::format("{}: expected a regular file to write, got a special file", path));
  }
  remove_stale_siblings(path);
  // A second writer of the same path in this process takes the next suffix instead of sharing the file.
  const std::string base = fmt::format("{}.tmp-{}", path, ::getpid());
  constexpr int attempts = 16;
  int reason = EEXIST;
  for (int attempt = 0; attempt < attempts && reason == EEXIST; ++attempt) {
    std::string temporary = attempt == 0 ? base : fmt::format("{}-{}", base, attempt);
    const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) {
      ::flock(descriptor, LOCK_EX | LOCK_NB);  // in use; best effort
      return AtomicFile(path, std::move(temporary), descriptor);
    }
    reason = errno;
  }
  return fail(write_error_code(reason), fmt::format("{}: cannot be created: {}", path, system_reason(reason)),
              reason == ENOENT ? "create its folder first" : "");
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) {
    return fail(ErrorCode::runtime,
                fmt::format("{}: write of {} bytes to a closed file", path_, bytes.size()));
  }
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), std::min(bytes.size(), largest_write));
    if (count < 0) {
      if (errno == EINTR) continue;
      const int reason = errno;
      discard();  // gives the space back at once; later calls report the closed file
      return write_failure(path_, "write failed", written_, reason);
    }
    written_ += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

Status AtomicFile::write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

Status AtomicFile::commit() {
  if (descriptor_ < 0) return fail(ErrorCode::runtime, fmt::format("{}: commit of a closed file", path_));
  // EINVAL and EROFS: a target that cannot be synced, such as a special file system; nothing is lost.
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
    const int reason = errno;
    discard();
    return write_failure(path_, "sync failed", written_, reason);
  }
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary_.c_str());
    return write_failure(path_, closed != 0 ? "close failed" : "rename failed", written_, reason);
  }
  sync_folder(parent_folder(path_));
  return {};
}

Status write_file_atomically(const std::string& path, std::string_view content) {
  HEXLM_ASSIGN(AtomicFile file, AtomicFile::create(path));
  HEXLM_TRY(file.write(content));
  return file.commit();
}

Result<std::string> read_file(const std::string& path, uint64_t limit) {
  HEXLM_ASSIGN(const FileDescriptor file, open_regular_file(path));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) {
    return fail(ErrorCode::bad_input, fmt::format("{}: cannot be examined: {}", path, system_reason(errno)));
  }
  const auto too_large = [&](uint64_t size) {
    return fail(ErrorCode::limit, fmt::format("{}: is {} bytes, expected at most {}", path, size, limit));
  };
  if (static_cast<uint64_t>(status.st_size) > limit) return too_large(static_cast<uint64_t>(status.st_size));
  // One byte more than the size tells the end of the file; a file that grows meanwhile is read to its end.
  std::string content(static_cast<size_t>(status.st_size) + 1, '\0');
  size_t filled = 0;
  while (true) {
    if (filled == content.size()) content.resize(content.size() * 2);
    const ssize_t count = ::read(file.get(), content.data() + filled, content.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: read failed after {} bytes: {}", path, filled, system_reason(errno)));
    }
    if (count == 0) break;
    filled += static_cast<size_t>(count);
    if (filled > limit) return too_large(filled);
  }
  content.resize(filled);
  return content;
}

}  // namespace hexlm
