#include "backends/cpu/memory_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace hexlm {
namespace {

/// Half the range of int64 keeps every sum of two offsets representable.
constexpr int64_t most_bytes = std::numeric_limits<int64_t>::max() / 2;

int64_t round_up(int64_t bytes) { return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment; }

bool live_together(const Interval& a, const Interval& b) { return a.first <= b.last && b.first <= a.last; }

/// The lowest gap of `bytes` between the placed neighbours, which are sorted by offset.
int64_t lowest_gap(const std::vector<std::pair<int64_t, int64_t>>& neighbours, int64_t bytes) {
  int64_t offset = 0;
  for (const auto& [begin, end] : neighbours) {
    if (begin - offset >= bytes) break;
    offset = std::max(offset, end);
  }
  return offset;
}

}  // namespace

Result<MemoryPlan> plan_memory(std::span<const Interval> intervals) {
  MemoryPlan plan;
  plan.offsets.assign(intervals.size(), 0);
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Ties by number, so that the layout is the same on every machine.
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return intervals[a].bytes != intervals[b].bytes ? intervals[a].bytes > intervals[b].bytes : a < b;
  });
  std::vector<size_t> placed;
  std::vector<std::pair<int64_t, int64_t>> neighbours;
  for (const size_t index : order) {
    const Interval& interval = intervals[index];
    if (interval.bytes <= 0) continue;
    if (interval.bytes > most_bytes - arena_alignment) {
      return fail(ErrorCode::limit, "the activations of one step do not fit into an address space");
    }
    neighbours.clear();
    for (const size_t other : placed) {
      if (!live_together(interval, intervals[other])) continue;
      neighbours.emplace_back(plan.offsets[other], plan.offsets[other] + round_up(intervals[other].bytes));
    }
    std::sort(neighbours.begin(), neighbours.end());
    const int64_t bytes = round_up(interval.bytes);
    const int64_t offset = lowest_gap(neighbours, bytes);
    if (offset > most_bytes - bytes) {
      return fail(ErrorCode::limit, "the activations of one step do not fit into an address space");
    }
    plan.offsets[index] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    placed.push_back(index);
  }
  return plan;
}

}  // namespace hexlm
