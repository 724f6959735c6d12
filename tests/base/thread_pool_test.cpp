#include "base/thread_pool.hpp"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

namespace hexlm {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, CoversEveryUnitOnceInRangesOfTheGrain) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const int64_t count : {0, 1, 2, 7, 64, 1000}) {
    for (const int64_t grain : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      std::atomic<bool> well_formed = true;
      pool.run(count, grain, [&](int64_t begin, int64_t end, int worker) {
        const bool whole = end - begin == grain || end == count;
        if (begin % grain != 0 || begin >= end || !whole || worker < 0 || worker >= pool.threads())
          well_formed = false;
        for (int64_t i = begin; i < end; ++i) hits[static_cast<size_t>(i)]++;
      });
      EXPECT_TRUE(well_formed) << count << " " << grain;
      for (const auto& hit : hits) ASSERT_EQ(hit, 1) << count << " " << grain;
    }
  }
}

// What one loop writes without atomics, the next must read from whichever thread: the race detector's test.
TEST_P(ThreadPoolTest, ManyTinyLoopsSeeEachOthersWrites) {
  ThreadPool pool(GetParam());
  constexpr int64_t count = 32;
  constexpr int loops = 3000;
  std::vector<int64_t> values(count, 0);
  std::vector<int64_t> next(count, 0);
  for (int loop = 0; loop < loops; ++loop) {
    pool.run(count, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        next[static_cast<size_t>(i)] = values[static_cast<size_t>((i + 1) % count)] + 1;
      }
    });
    std::swap(values, next);
  }
  for (const int64_t value : values) EXPECT_EQ(value, loops);
}

TEST_P(ThreadPoolTest, WorkersWakeAfterTheyParked) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far beyond the time that workers spin
    std::atomic<int64_t> sum = 0;
    pool.run(1000, 10, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    ASSERT_EQ(sum, 499500);
  }
}

TEST_P(ThreadPoolTest, WorkerNumbersAreNeverShared) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> inside(static_cast<size_t>(GetParam()));
  std::atomic<bool> shared = false;
  for (int loop = 0; loop < 200; ++loop) {
    pool.run(64, 1, [&](int64_t, int64_t, int worker) {
      if (inside[static_cast<size_t>(worker)]++ != 0) shared = true;
      inside[static_cast<size_t>(worker)]--;
    });
  }
  EXPECT_FALSE(shared);
}

TEST_P(ThreadPoolTest, NestedLoopsStayOnTheirThread) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> sum = 0;
  std::atomic<bool> moved = false;
  pool.run(16, 1, [&](int64_t, int64_t, int outer) {
    const auto thread = std::this_thread::get_id();
    pool.run(10, 3, [&](int64_t begin, int64_t end, int inner) {
      if (inner != outer || std::this_thread::get_id() != thread) moved = true;
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
  });
  EXPECT_EQ(sum, 16 * 45);
  EXPECT_FALSE(moved);
}

TEST_P(ThreadPoolTest, HugeCountsDoNotOverflow) {
  ThreadPool pool(GetParam());
  constexpr int64_t count = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> sum = 0;
  std::atomic<int> calls = 0;
  pool.run(count, count / 5, [&](int64_t begin, int64_t end, int) {
    sum += end - begin;
    calls++;
  });
  EXPECT_EQ(sum, count);
  EXPECT_EQ(calls, 6);  // five of the grain and the rest
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Range(1, 9));

TEST(ThreadPool, WorkIsSharedAlsoAfterTheWorkersParked) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::vector<int> calls(2, 0);
    pool.run(64, 1, [&](int64_t, int64_t, int worker) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      calls[static_cast<size_t>(worker)]++;
    });
    EXPECT_EQ(calls[0] + calls[1], 64);
    EXPECT_GT(calls[0], 0);
    EXPECT_GT(calls[1], 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // far beyond the time that workers spin
  }
}

TEST(ThreadPool, FewerThanOneThreadIsOne) { EXPECT_EQ(ThreadPool(0).threads(), 1); }

TEST(ThreadPool, TwoPoolsNest) {
  ThreadPool outer(2);
  ThreadPool inner(3);
  int64_t sum = 0;
  outer.run(4, 4, [&](int64_t, int64_t, int) {
    std::atomic<int64_t> part = 0;
    inner.run(100, 1, [&](int64_t begin, int64_t, int) { part += begin; });
    sum += part;
  });
  EXPECT_EQ(sum, 4950);
}

}  // namespace
}  // namespace hexlm
