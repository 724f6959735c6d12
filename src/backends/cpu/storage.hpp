#pragma once

#include <cstdint>
#include <vector>

#include "backends/backend.hpp"
#include "backends/cpu/memory_plan.hpp"
#include "graph/graph.hpp"

namespace hexlm {

/// Where one value lives.
struct ValueStorage {
  enum class Kind : uint8_t {
    arena,   ///< at `offset` of the arena
    input,   ///< the caller's memory, input number `index`
    output,  ///< the caller's memory, output number `index`
  };
  Kind kind = Kind::arena;
  int64_t offset = 0;
  size_t index = 0;
  int32_t root = -1;  ///< the value whose memory this one shares; itself when it has its own
};

/// An output whose value already has a home (a graph input, or another output): copied at the end of a run.
struct OutputCopy {
  ValueId value;
  size_t output = 0;
};

/// Memory that the steps need beside the values.
struct ScratchRequest {
  int64_t bytes = 0;
  int32_t node = -1;  ///< in use while this node runs; −1: during the whole run
};

struct StoragePlan {
  std::vector<ValueStorage> values;  ///< by value index
  std::vector<int64_t> scratch;      ///< offset of each request
  std::vector<OutputCopy> copies;
  std::vector<Interval> intervals;  ///< of each value that is its own root and lies in the arena; else empty
  int64_t arena_bytes = 0;
};

/// Gives every value of `graph` its memory for the largest run. A reshape shares
/// its input's memory, and so does an op that can work in place and is its input's last reader; memory of the
/// arena is used again after a value's last reader. Errors: limit when sizes overflow.
Result<StoragePlan> plan_storage(const Graph& graph, const PlanOptions& options,
                                 const std::vector<ScratchRequest>& scratch);

}  // namespace hexlm
