#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <vector>

/// A safetensors file's bytes from its header as text and its data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i)
    bytes += static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i) & 0xff);
  return bytes + header + data;
}

/// One header entry: `"name":{"dtype":…,"shape":[…],"data_offsets":[begin,end]}`.
inline std::string header_entry(const std::string& name, const std::string& dtype, const std::string& shape,
                                uint64_t begin, uint64_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name, dtype, shape,
                     begin, end);
}

inline std::string header_of(const std::vector<std::string>& entries) {
  return fmt::format("{{{}}}", fmt::join(entries, ","));
}
