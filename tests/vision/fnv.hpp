#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <span>
#include <string>

/// FNV-1a of the bytes in 16 hexadecimal digits, as the golden files state it: a few lines in any language.
inline std::string fnv1a(std::span<const uint8_t> bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}
