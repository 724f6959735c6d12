#include "quantization/resources.hpp"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "base/file_descriptor.hpp"

namespace hexlm {

Result<uint64_t> free_disk_bytes(const std::string& path) {
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(path, error);
  while (!error && !std::filesystem::exists(place, error) && place.has_relative_path())
    place = place.parent_path();
  struct statvfs status{};
  if (::statvfs(place.c_str(), &status) != 0) {
    return fail(ErrorCode::runtime,
                fmt::format("{}: free disk space is unknown: {}", place.string(), system_reason(errno)));
  }
  return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
}

std::optional<uint64_t> available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    unsigned long long kilobytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kilobytes) == 1) return kilobytes * 1024;
  }
  return std::nullopt;
}

uint64_t peak_memory_bytes() {
  struct rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace hexlm
