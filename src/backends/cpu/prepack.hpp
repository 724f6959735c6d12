#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "formats/package.hpp"
#include "graph/graph.hpp"

namespace hexlm {

struct PrepackResult {
  std::string layout;
  int64_t tensors = 0;
  uint64_t bytes = 0;  ///< of the file
};

/// Adds the folder `prepacked` to a package: every matrix of `graphs` that precision normal multiplies with
/// int8 activations, packed for `target`, one of prepack_targets. Memory is bounded by the largest matrix.
/// The folder counts only once it is complete. Errors: usage for another target, unsupported when the package
/// has no such matrix, interrupted, those of writing.
Result<PrepackResult> prepack(const std::shared_ptr<const Package>& package,
                              std::span<const Graph* const> graphs, std::string_view target, int threads,
                              const ProgressCallback& progress);

}  // namespace hexlm
