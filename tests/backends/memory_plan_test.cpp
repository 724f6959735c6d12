#include "backends/cpu/memory_plan.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace hexlm {
namespace {

/// Pairs of intervals that live together and share bytes.
int overlaps(const std::vector<Interval>& intervals, const MemoryPlan& plan) {
  int count = 0;
  for (size_t a = 0; a < intervals.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const bool together =
          intervals[a].first <= intervals[b].last && intervals[b].first <= intervals[a].last;
      const bool shared = plan.offsets[a] < plan.offsets[b] + intervals[b].bytes &&
                          plan.offsets[b] < plan.offsets[a] + intervals[a].bytes;
      count += together && shared ? 1 : 0;
    }
  }
  return count;
}

TEST(MemoryPlan, ReusesMemoryOfDeadIntervals) {
  const std::vector<Interval> chain = {{1000, 0, 1}, {1000, 1, 2}, {1000, 2, 3}, {1000, 3, 4}};
  const auto plan = plan_memory(chain);
  ASSERT_TRUE(plan);
  EXPECT_EQ(overlaps(chain, *plan), 0);
  EXPECT_EQ(plan->bytes, 2 * 1024);
}

TEST(MemoryPlan, FillsGapsBelowLargerIntervals) {
  const std::vector<Interval> intervals = {{640, 0, 9}, {256, 0, 1}, {64, 0, 9}, {128, 2, 3}};
  const auto plan = plan_memory(intervals);
  ASSERT_TRUE(plan);
  EXPECT_EQ(overlaps(intervals, *plan), 0);
  EXPECT_EQ(plan->offsets[3], 640);
  EXPECT_EQ(plan->bytes, 640 + 256 + 64);
}

TEST(MemoryPlan, NothingNeedsNothing) {
  const auto plan = plan_memory(std::vector<Interval>{{0, 0, 3}, {0, 1, 2}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->bytes, 0);
}

TEST(MemoryPlan, RefusesSizesBeyondTheAddressSpace) {
  constexpr int64_t huge = std::numeric_limits<int64_t>::max() / 2 - 1024;
  const auto plan = plan_memory(std::vector<Interval>{{huge, 0, 3}, {huge, 1, 2}});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::limit);
}

TEST(MemoryPlan, RandomIntervalsNeverOverlapAndAreAligned) {
  std::mt19937 engine(7);
  for (int round = 0; round < 200; ++round) {
    const int steps = std::uniform_int_distribution<int>(1, 40)(engine);
    std::vector<Interval> intervals;
    std::vector<int64_t> in_use(static_cast<size_t>(steps), 0);
    for (int i = std::uniform_int_distribution<int>(1, 80)(engine); i > 0; --i) {
      const int first = std::uniform_int_distribution<int>(0, steps - 1)(engine);
      const int last = std::uniform_int_distribution<int>(first, steps - 1)(engine);
      const int64_t bytes = std::uniform_int_distribution<int64_t>(0, 5000)(engine);
      intervals.push_back({bytes, first, last});
      for (int s = first; s <= last; ++s) in_use[static_cast<size_t>(s)] += bytes;
    }
    const auto plan = plan_memory(intervals);
    ASSERT_TRUE(plan);
    ASSERT_EQ(overlaps(intervals, *plan), 0) << "round " << round;
    int64_t end = 0;
    for (size_t i = 0; i < intervals.size(); ++i) {
      EXPECT_EQ(plan->offsets[i] % arena_alignment, 0);
      end = std::max(end, plan->offsets[i] + intervals[i].bytes);
    }
    EXPECT_LE(end, plan->bytes);
    EXPECT_GE(plan->bytes, *std::max_element(in_use.begin(), in_use.end()));
  }
}

}  // namespace
}  // namespace hexlm
