#include "base/stale_files.hpp"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>

#include "base/log.hpp"
#include "base/text.hpp"

namespace hexlm {
namespace {

namespace stdfs = std::filesystem;

/// The process in ".tmp-PID" or ".tmp-PID-N".
std::optional<pid_t> process_of(std::string_view suffix) {
  const std::vector<std::string_view> parts = split(suffix, '-');
  int64_t value = 0;
  if (parts.empty() || parts.size() > 2 || !parse_integer(parts[0], value) || value <= 0 ||
      value > std::numeric_limits<pid_t>::max()) {
    return std::nullopt;
  }
  int64_t attempt = 0;
  if (parts.size() == 2 && (!parse_integer(parts[1], attempt) || attempt <= 0)) return std::nullopt;
  return static_cast<pid_t>(value);
}

/// A process of another container may have the number of one that is gone here, but then it holds the lock.
bool is_abandoned(const std::string& path, pid_t process) {
  if (::kill(process, 0) == 0 || errno != ESRCH) return false;
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0 || (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)))
    return false;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file.valid() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

FileDescriptor mark_in_use(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.valid() && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return FileDescriptor();
  return file;
}

void remove_stale_siblings(const std::string& target) {
  const stdfs::path path(target);
  const std::string name = path.filename().string();
  const stdfs::path folder = path.has_parent_path() ? path.parent_path() : stdfs::path(".");
  std::error_code error;
  const bool target_exists = stdfs::exists(path, error);
  std::vector<std::string> stale;
  for (stdfs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string other = entry->path().filename().string();
    for (const char* kind : {".tmp-", ".old-"}) {
      const std::string prefix = name + kind;
      if (!other.starts_with(prefix) || (std::string_view(kind) == ".old-" && !target_exists)) continue;
      const std::optional<pid_t> process = process_of(std::string_view(other).substr(prefix.size()));
      if (process && is_abandoned(entry->path().string(), *process)) stale.push_back(entry->path().string());
    }
  }
  for (const std::string& left : stale) {
    stdfs::remove_all(left, error);
    if (error) {
      log_warning(fmt::format("{}: was left by a process that is gone and could not be removed: {}", left,
                              error.message()));
    } else {
      log_info(fmt::format("{}: removed, left by a process that is gone", left));
    }
  }
}

}  // namespace hexlm
