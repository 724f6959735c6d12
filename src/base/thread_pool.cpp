#include "base/thread_pool.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fmt/format.h>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/cpu_features.hpp"
#include "base/log.hpp"
#include "base/processors.hpp"

namespace hexlm {
namespace {

/// How long a thread polls before it parks. Waking a parked thread costs tens of microseconds; the gaps
/// between the loops of one forward pass are shorter than this.
constexpr std::chrono::microseconds spin_time{50};
/// Reading the clock takes about as long as this many pauses.
constexpr int pauses_per_clock_read = 16;
/// Two cache lines: adjacent lines are fetched in pairs on x86.
constexpr size_t separation = 128;

inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Polls `ready` for at most `limit`; true when it came true.
template <class Predicate>
bool spin_until(std::chrono::microseconds limit, Predicate ready) {
  if (ready()) return true;
  if (limit.count() == 0) return false;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < pauses_per_clock_read; ++i) {
      if (ready()) return true;
      pause_processor();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

/// The gate is one word, so that "is this loop open, and count me in" is a single atomic step: bits 32–63 the
/// loop's number, bit 31 whether workers may still join, bits 0–30 how many are inside.
constexpr uint64_t open_bit = uint64_t{1} << 31;
constexpr uint64_t inside_mask = open_bit - 1;
constexpr uint64_t loop_number(uint64_t gate) { return gate >> 32; }

/// Which pool's loop this thread is inside, and as which worker: a nested `run` then stays on this thread.
struct Inside {
  const void* pool = nullptr;
  int worker = 0;
};
thread_local Inside inside;

}  // namespace

struct ThreadPool::Shared {
  alignas(separation) std::atomic<uint64_t> gate{0};
  alignas(separation) std::atomic<int64_t> next{0};
  // The loop. Written while the gate is shut and nobody is inside; read only by those inside.
  alignas(separation) int64_t count = 0;
  int64_t grain = 1;
  int64_t chunks = 0;
  void* context = nullptr;
  Function function = nullptr;

  alignas(separation) std::atomic<int> parked{0};
  std::atomic<bool> caller_parked{false};
  std::atomic<bool> stopping{false};
  std::mutex mutex;
  std::condition_variable work_came;
  std::condition_variable all_left;
  std::chrono::microseconds spin{spin_time};
  std::vector<int> processors;
  std::vector<std::thread> workers;

  void run_chunks(int worker);
  void work(int worker);
  bool join(uint64_t number);
  void leave();
  void await_loop(uint64_t last_number);
  void wake_workers(int64_t wanted);
  void await_empty();
};

/// Takes chunks until none is left. Chunk numbers rather than offsets are counted: they cannot overflow.
void ThreadPool::Shared::run_chunks(int worker) {
  const Inside outer = inside;
  inside = {this, worker};
  for (int64_t chunk = next.fetch_add(1, std::memory_order_relaxed); chunk < chunks;
       chunk = next.fetch_add(1, std::memory_order_relaxed)) {
    const int64_t begin = chunk * grain;
    function(context, begin, begin + std::min(grain, count - begin), worker);
  }
  inside = outer;
}

bool ThreadPool::Shared::join(uint64_t number) {
  uint64_t seen = gate.load(std::memory_order_relaxed);
  while (loop_number(seen) == number && (seen & open_bit) != 0) {
    if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire, std::memory_order_relaxed))
      return true;
  }
  return false;
}

void ThreadPool::Shared::leave() {
  const uint64_t before = gate.fetch_sub(1, std::memory_order_seq_cst);
  const bool last = (before & open_bit) == 0 && (before & inside_mask) == 1;
  if (last && caller_parked.load(std::memory_order_seq_cst)) {
    {
      const std::lock_guard lock(mutex);
    }  // the caller is either waiting by now or will see the empty gate
    all_left.notify_one();
  }
}

void ThreadPool::Shared::await_loop(uint64_t last_number) {
  const auto came = [&] {
    return stopping.load(std::memory_order_relaxed) ||
           loop_number(gate.load(std::memory_order_seq_cst)) != last_number;
  };
  if (spin_until(spin, came)) return;
  std::unique_lock lock(mutex);
  // `parked` is raised before `came` looks at the gate, and the caller moves the gate before it looks at
  // `parked`: in any order of the two, the worker sees the loop or the caller sees the worker.
  parked.fetch_add(1, std::memory_order_seq_cst);
  work_came.wait(lock, came);
  parked.fetch_sub(1, std::memory_order_relaxed);
}

void ThreadPool::Shared::wake_workers(int64_t wanted) {
  const int sleeping = parked.load(std::memory_order_seq_cst);
  if (sleeping == 0) return;
  {
    const std::lock_guard lock(mutex);
  }  // who raised `parked` is waiting by now; notified unlocked, it runs at once
  if (wanted >= sleeping) {
    work_came.notify_all();
  } else {
    for (int64_t i = 0; i < wanted; ++i) work_came.notify_one();
  }
}

void ThreadPool::Shared::await_empty() {
  const auto empty = [&] { return (gate.load(std::memory_order_seq_cst) & inside_mask) == 0; };
  if (spin_until(spin, empty)) return;
  std::unique_lock lock(mutex);
  caller_parked.store(true, std::memory_order_seq_cst);
  all_left.wait(lock, empty);
  caller_parked.store(false, std::memory_order_relaxed);
}

void ThreadPool::Shared::work(int worker) {
  pin_thread(processors);  // refused only when they went offline meanwhile
  uint64_t last_number = 0;
  while (true) {
    await_loop(last_number);
    if (stopping.load(std::memory_order_acquire)) return;
    last_number = loop_number(gate.load(std::memory_order_acquire));
    if (!join(last_number)) continue;
    run_chunks(worker);
    leave();
  }
}

ThreadPool::ThreadPool(int threads, std::vector<int> processors)
    : shared_(std::make_unique<Shared>()), threads_(std::max(1, threads)) {
  // With more threads than processors a spinning thread keeps a working one from running.
  const int room = processors.empty() ? available_threads() : static_cast<int>(processors.size());
  if (threads_ > room) shared_->spin = std::chrono::microseconds(0);
  shared_->processors = std::move(processors);
  shared_->workers.reserve(static_cast<size_t>(threads_ - 1));
  for (int worker = 1; worker < threads_; ++worker) {
    try {
      shared_->workers.emplace_back([shared = shared_.get(), worker] { shared->work(worker); });
    } catch (const std::system_error& error) {  // a limit on threads: go on with those that started
      log_warning(fmt::format("{} of {} threads started: {}", worker, threads_, error.what()));
      threads_ = worker;
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping.store(true, std::memory_order_release);
  }
  shared_->work_came.notify_all();
  for (std::thread& worker : shared_->workers) worker.join();
}

const std::vector<int>& ThreadPool::processors() const { return shared_->processors; }

void ThreadPool::dispatch(int64_t count, int64_t grain, void* context, Function function) {
  if (count <= 0) return;
  grain = std::clamp<int64_t>(grain, 1, count);
  const int64_t chunks = (count - 1) / grain + 1;
  Shared& shared = *shared_;
  const bool nested = inside.pool == &shared;
  if (threads_ == 1 || chunks == 1 || nested) {
    const int worker = nested ? inside.worker : 0;
    const Inside outer = inside;
    inside = {&shared, worker};
    for (int64_t begin = 0; count - begin > 0; begin += std::min(grain, count - begin)) {
      function(context, begin, begin + std::min(grain, count - begin), worker);
    }
    inside = outer;
    return;
  }
  shared.count = count;
  shared.grain = grain;
  shared.chunks = chunks;
  shared.context = context;
  shared.function = function;
  shared.next.store(0, std::memory_order_relaxed);
  const uint64_t number = loop_number(shared.gate.load(std::memory_order_relaxed)) + 1;
  shared.gate.store(number << 32 | open_bit, std::memory_order_seq_cst);
  shared.wake_workers(std::min<int64_t>(chunks, threads_) - 1);
  shared.run_chunks(0);
  shared.gate.fetch_and(~open_bit, std::memory_order_seq_cst);
  shared.await_empty();
}

}  // namespace hexlm
