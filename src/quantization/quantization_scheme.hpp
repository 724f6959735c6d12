#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "formats/name_pattern.hpp"

namespace hexlm {

/// `quantization_config` of a checkpoint that was quantized by another program (spec D.9).
struct QuantizationScheme {
  enum class Format : uint8_t { gptq_v1, gptq_v2, awq_gemm, pack_quantized, fp8_block };
  Format format = Format::gptq_v1;
  int bits = 4;
  int64_t group = 0;         ///< input channels; 0: per output channel
  int64_t block_rows = 128;  ///< of fp8_block
  int64_t block_columns = 128;
  /// compressed-tensors: bits by patterns over module names, the first that matches; `bits` for the others.
  std::vector<std::pair<NamePattern, int>> bits_of;

  Result<int> bits_for(std::string_view module) const;
};

/// "gptq", "awq", "compressed-tensors", "fp8"
std::string_view to_string(QuantizationScheme::Format format);

/// Errors: bad_input for keys missing or out of range; unsupported for other methods, formats and layouts.
Result<QuantizationScheme> parse_quantization_scheme(const Json& json, const std::string& origin);

}  // namespace hexlm
