#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"

namespace hexlm {

/// A stretch of memory that is in use from step `first` to step `last`, both included.
struct Interval {
  int64_t bytes = 0;
  int32_t first = 0;
  int32_t last = 0;
};

/// Where each interval lies in one arena; those that are in use at the same step never overlap.
struct MemoryPlan {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;  ///< size of the arena
};

/// One cache line, and the alignment that kernels ask of their scratch memory.
inline constexpr int64_t arena_alignment = 64;

/// Places the largest intervals first, each at the lowest offset that is free while it lives. Intervals of no
/// bytes get offset 0. Errors: limit when the sizes overflow.
Result<MemoryPlan> plan_memory(std::span<const Interval> intervals);

}  // namespace hexlm
