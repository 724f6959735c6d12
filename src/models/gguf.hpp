#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/gguf.hpp"
#include "formats/json.hpp"
#include "models/model_config.hpp"

namespace hexlm {

/// The config.json of the model in a GGUF file, from its metadata: architectures llama, qwen2, qwen3 and
/// qwen35 (qwen3_5_text). Llama 3's rope scaling is recognised by the frequency factors it stores instead.
/// Errors: bad_input for a key that is missing or out of range; unsupported for other architectures and
/// ropes.
Result<Json> gguf_config(const GgufFile& file);

/// How a parameter is made from a GGUF tensor.
struct GgufWeight {
  enum class Values : uint8_t {
    same,
    minus_one,    ///< the file folded 1 into a zero-centred norm (spec A.1)
    log_negated,  ///< ssm_a = −exp(A_log)
  };
  std::string name;  ///< canonical
  const GgufTensor* tensor = nullptr;
  std::vector<int64_t> shape;
  Values values = Values::same;
  /// Row (column) r of the parameter is row rows[r] of the tensor; empty: in order.
  std::vector<int64_t> rows;
  std::vector<int64_t> columns;
};

/// Every weight of the file. Undone are llama.cpp's orders (spec A.4): llama's rotary pairs next to each
/// other in q and k, and value heads of qwen35 by their index within a key head first. Errors: unsupported
/// for a tensor that the architecture does not define; bad_input for one whose sizes do not allow the order.
Result<std::vector<GgufWeight>> gguf_weights(const GgufFile& file, const ModelConfig& config);

}  // namespace hexlm
