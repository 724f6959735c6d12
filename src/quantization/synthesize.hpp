#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/progress.hpp"

namespace hexlm {

struct SynthesizeOptions {
  std::string config;         ///< config.json, or a folder holding one
  std::string output;         ///< checkpoint folder to create
  DType dtype = DType::bf16;  ///< f32, f16 or bf16
  uint64_t seed = 0;
  bool replace = false;
  int threads = 1;
  uint64_t shard_bytes = uint64_t{5} * 1000 * 1000 * 1000;  ///< what transformers writes by default
};

struct SynthesizeResult {
  uint64_t bytes = 0;
  int64_t parameters = 0;
};

/// Writes a checkpoint of that shape with random weights (normal, standard deviation `initializer_range`;
/// norms around their neutral value) for measuring speed and memory; the same seed gives the same bytes
/// whatever the thread count. Streams: memory does not grow with the model.
Result<SynthesizeResult> synthesize(const SynthesizeOptions& options, const ProgressCallback& progress);

}  // namespace hexlm
