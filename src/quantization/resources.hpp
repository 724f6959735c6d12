#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.hpp"

namespace hexlm {

/// Bytes that a user may still write to the disk that `path` lies (or will lie) on. Errors: runtime.
Result<uint64_t> free_disk_bytes(const std::string& path);
/// Memory that can be had without swapping; none where the system does not tell.
std::optional<uint64_t> available_memory_bytes();
/// The greatest resident size this process has had.
uint64_t peak_memory_bytes();

}  // namespace hexlm
