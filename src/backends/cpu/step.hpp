#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cpu/extent.hpp"
#include "backends/cpu/prepared_weights.hpp"
#include "backends/cpu/state_set.hpp"
#include "base/thread_pool.hpp"
#include "kernels/kernels.hpp"

namespace hexlm {

/// Where a value lies. Read anew in every run: graph inputs and outputs are the caller's memory and move.
class Binding {
 public:
  Binding() = default;
  explicit Binding(void* const* slot) : slot_(slot) {}
  float* floats() const { return static_cast<float*>(*slot_); }
  const int32_t* integers() const { return static_cast<const int32_t*>(*slot_); }

 private:
  void* const* slot_ = nullptr;
};

/// What the steps of one run share.
struct RunContext {
  const KernelSet& kernels;
  ThreadPool& pool;
  SymbolValues symbols;
  CpuStateSet& state;
  float* scratch;          ///< of worker 0
  int64_t scratch_stride;  ///< floats between workers, a multiple of 16

  float* worker_scratch(int worker) const { return scratch + worker * scratch_stride; }
};

/// One prepared node. `run` never allocates, locks or looks anything up.
class Step {
 public:
  virtual ~Step() = default;
  virtual void run(const RunContext& context) = 0;
};

/// Starting a loop on another thread costs as much as about this many multiply-adds (a few microseconds).
inline constexpr int64_t least_parallel_work = 1 << 16;

/// Units of a loop to hand out at a time: all when the loop is too small to share, else so that every worker
/// gets about eight helpings, which evens out slow cores. Helpings are multiples of `multiple` units: vector
/// kernels then group the same units whatever the number of threads, so that results don't depend on it.
inline int64_t grain_of(const ThreadPool& pool, int64_t units, int64_t work_per_unit, int64_t multiple = 1) {
  if (pool.threads() == 1 || units <= multiple || work_per_unit * units < least_parallel_work) {
    return std::max<int64_t>(units, 1);
  }
  const int64_t helpings = int64_t{8} * pool.threads();
  const int64_t least = (least_parallel_work / 4 + work_per_unit - 1) / std::max<int64_t>(work_per_unit, 1);
  const int64_t grain = std::max((units + helpings - 1) / helpings, least);
  return (grain + multiple - 1) / multiple * multiple;
}

/// Tiles of a matrix to hand out at a time: kernels multiply two at once.
inline constexpr int64_t tile_multiple = 2;

/// Activations as int8, one buffer a block size. Linears that share their input share its quantized form.
struct QuantizedBuffers {
  QuantizedRows of_32;
  QuantizedRows of_64;
  QuantizedRows& of(int64_t block) { return block == 32 ? of_32 : of_64; }
};

/// Quantizes `rows` rows of x into `out`, whose block is set.
void quantize(const RunContext& context, const float* x, int64_t rows, const PreparedMatrix& matrix,
              QuantizedRows& out);

/// The rows of one product's input; quantized for packed matrices.
struct LinearInput {
  const float* x = nullptr;
  int64_t rows = 0;
  const QuantizedRows* quantized = nullptr;
  int64_t first_quantized = 0;  ///< row of `quantized` that is row 0 here
};

/// y[r, o] for the outputs of tiles tile_begin … tile_end−1 (16 outputs each).
void multiply(const KernelSet& kernels, const PreparedMatrix& matrix, const LinearInput& input,
              const float* bias, float* y, int64_t y_stride, int64_t tile_begin, int64_t tile_end,
              float* scratch);

}  // namespace hexlm
