#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/tensor.hpp"

namespace hexlm {

/// The longest header that the format allows.
inline constexpr uint64_t safetensors_header_limit = 100'000'000;
/// The reserved header key of free-form string pairs.
inline constexpr std::string_view safetensors_metadata_key = "__metadata__";

struct SafetensorsContent {
  std::vector<TensorView> tensors;  ///< in data order; views into the file's bytes
  std::map<std::string, std::string> metadata;
  size_t header_bytes = 0;  ///< length field and JSON
};

/// Checks a whole safetensors file, as described at SafetensorsFile. `origin` names it in messages.
Result<SafetensorsContent> parse_safetensors(std::span<const std::byte> file, const std::string& origin);

}  // namespace hexlm
