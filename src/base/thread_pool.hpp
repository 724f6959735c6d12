#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

namespace hexlm {

/// A fixed set of threads that run one parallel loop at a time. The caller's thread takes part as worker 0.
/// Workers spin briefly between loops, then park. Only one thread may call `run` at a time.
class ThreadPool {
 public:
  /// `threads` >= 1 counts the caller's thread. The pool's own threads stay on `processors`, wherever the
  /// scheduler likes when that is empty. The caller's thread is the caller's: see PinnedThread.
  explicit ThreadPool(int threads, std::vector<int> processors = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  const std::vector<int>& processors() const;

  /// Calls `body(begin, end, worker)` until [0, count) is covered, handing out ranges of `grain` units to
  /// whichever worker is free. Returns when all is done. No allocation. `body` must not throw.
  template <class Body>
  void run(int64_t count, int64_t grain, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    dispatch(count, grain, const_cast<std::remove_const_t<Plain>*>(&body),
             [](void* context, int64_t begin, int64_t end, int worker) {
               (*static_cast<Plain*>(context))(begin, end, worker);
             });
  }

 private:
  using Function = void (*)(void* context, int64_t begin, int64_t end, int worker);
  void dispatch(int64_t count, int64_t grain, void* context, Function function);
  struct Shared;
  std::unique_ptr<Shared> shared_;
  int threads_;
};

}  // namespace hexlm
