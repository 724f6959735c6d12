#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/progress.hpp"
#include "quantization/adapted_weights.hpp"

namespace hexlm {

struct MergeOptions {
  std::string checkpoint;  ///< folder
  std::vector<AdapterChoice> adapters;
  std::string output;        ///< checkpoint folder to create
  DType dtype = DType::f32;  ///< of the merged tensors: f32 loses nothing; f16 and bf16 round
  bool replace = false;      ///< overwrite what an earlier merge wrote
  std::string tool_version;
};

struct MergeResult {
  int64_t tensors = 0;
  int64_t tensors_changed = 0;
  uint64_t bytes = 0;
};

/// Writes the checkpoint with the adapters merged in: the same shards and names, untouched tensors byte for
/// byte, the other files copied, and `merge.json` saying what was merged. Streams: memory holds one merged
/// tensor. The folder appears whole or not at all. Errors: those of open_source_model; bad_input for merged
/// values that are not finite (names the tensor); limit for a full disk.
Result<MergeResult> merge_checkpoint(const MergeOptions& options, const ProgressCallback& progress);

}  // namespace hexlm
