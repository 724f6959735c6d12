#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/file_descriptor.hpp"
#include "base/log.hpp"
#include "base/stale_files.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log_warning(fmt::format("{}: could not be removed: {}", path, error.message()));
}

tl::unexpected<Error> rename_failure(const std::string& from, const std::string& to, int reason) {
  return fail(write_error_code(reason),
              fmt::format("{}: rename to {} failed: {}", from, to, system_reason(reason)));
}

}  // namespace

AtomicFolder::AtomicFolder(std::string path, std::string temporary, bool replace)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      in_use_(mark_in_use(temporary_)),
      replace_(replace) {}

AtomicFolder::AtomicFolder(AtomicFolder&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, std::string())),
      in_use_(std::move(other.in_use_)),
      replace_(other.replace_) {}

AtomicFolder& AtomicFolder::operator=(AtomicFolder&& other) noexcept {
  if (this != &other) {
    discard();
    path_ = std::move(other.path_);
    temporary_ = std::exchange(other.temporary_, std::string());
    in_use_ = std::move(other.in_use_);
    replace_ = other.replace_;
  }
  return *this;
}

AtomicFolder::~AtomicFolder() { discard(); }

void AtomicFolder::discard() {
  if (temporary_.empty()) return;
  remove_tree(temporary_);
  temporary_.clear();
}

Result<AtomicFolder> AtomicFolder::create(const std::string& path, bool replace, const std::string& marker) {
  const std::string target = without_trailing_slashes(path);
  const std::string last = fs::path(target).filename().string();
  // A rename needs a name of its own: "", "/", "." and ".." name something that exists under another name.
  if (last.empty() || last == "." || last == "..") {
    return fail(ErrorCode::usage, fmt::format("'{}': expected the name of a new folder", path));
  }
  struct stat status{};
  if (::lstat(target.c_str(), &status) == 0) {
    if (!replace) {
      return fail(ErrorCode::usage, fmt::format("{}: exists already", target),
                  "remove it or choose another name");
    }
    if (!S_ISDIR(status.st_mode)) {
      return fail(ErrorCode::usage, fmt::format("{}: expected a folder to replace, got a file", target));
    }
    std::error_code error;
    if (!fs::is_empty(target, error) && !fs::exists(fs::path(target) / marker, error)) {
      return fail(ErrorCode::usage,
                  fmt::format("{}: expected an empty folder or one with a {} to replace", target, marker),
                  "nothing was changed; choose another name or remove the folder yourself");
    }
  }
  remove_stale_siblings(target);
  const std::string base = fmt::format("{}.tmp-{}", target, ::getpid());
  constexpr int attempts = 16;
  int reason = EEXIST;
  for (int attempt = 0; attempt < attempts && reason == EEXIST; ++attempt) {
    std::string temporary = attempt == 0 ? base : fmt::format("{}-{}", base, attempt);
    if (::mkdir(temporary.c_str(), 0777) == 0) return AtomicFolder(target, std::move(temporary), replace);
    reason = errno;
  }
  return fail(write_error_code(reason),
              fmt::format("{}: cannot be created: {}", target, system_reason(reason)),
              reason == ENOENT ? "create its parent folder first" : "");
}

Status AtomicFolder::commit() {
  if (temporary_.empty()) {
    return fail(ErrorCode::runtime, fmt::format("{}: commit of a finished folder", path_));
  }
  sync_folder(temporary_);
  struct stat status{};
  const bool exists = ::lstat(path_.c_str(), &status) == 0;
  if (exists && !replace_) {
    return fail(ErrorCode::runtime, fmt::format("{}: appeared while it was being written", path_));
  }
  const std::string aside = fmt::format("{}.old-{}", path_, ::getpid());
  if (exists && ::rename(path_.c_str(), aside.c_str()) != 0) return rename_failure(path_, aside, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int reason = errno;
    if (exists && ::rename(aside.c_str(), path_.c_str()) != 0) {
      log_warning(fmt::format("{}: the former content is in {}", path_, aside));
    }
    return rename_failure(temporary_, path_, reason);
  }
  temporary_.clear();
  const std::string parent = fs::path(path_).parent_path().string();
  sync_folder(parent.empty() ? "." : parent);
  if (exists) remove_tree(aside);
  return {};
}

}  // namespace hexlm
