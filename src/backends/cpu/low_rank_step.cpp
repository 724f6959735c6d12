#include "backends/cpu/low_rank_step.hpp"

#include <utility>

namespace hexlm {
namespace {

/// Outputs that are updated together: their part of y stays in the first-level cache over the ranks.
constexpr int64_t output_block = 512;

}  // namespace

void LowRankSlot::set(LowRankUpdate update, int64_t rows, int threads) {
  update_ = std::move(update);
  hidden_.assign(static_cast<size_t>(rows * update_.rank), 0);
  scratch_stride_ = (float_linear_scratch(update_.inputs) + 15) / 16 * 16;
  // The kernel wants 64-byte alignment, vectors give 16: one line more.
  scratch_.assign(static_cast<size_t>(scratch_stride_ * threads + 16), 0);
}

void LowRankSlot::apply(const RunContext& context, const float* x, const float* bias, float* y,
                        int64_t rows) {
  FloatLinearArguments product;
  product.x = x;
  product.x_stride = update_.inputs;
  product.tokens = rows;
  product.weight.rows = update_.rank;
  product.weight.columns = update_.inputs;
  product.weight.data = reinterpret_cast<const std::byte*>(update_.down.data());
  product.y = hidden_.data();
  product.y_stride = update_.rank;
  const auto address = reinterpret_cast<uintptr_t>(scratch_.data());
  float* scratch = scratch_.data() + (64 - address % 64) % 64 / sizeof(float);
  const int64_t tiles = (update_.rank + packed_tile_rows - 1) / packed_tile_rows;
  const int64_t work = rows * packed_tile_rows * update_.inputs;
  context.pool.run(tiles, grain_of(context.pool, tiles, work, tile_multiple),
                   [&](int64_t begin, int64_t end, int worker) {
                     FloatLinearArguments mine = product;
                     mine.row_begin = begin * packed_tile_rows;
                     mine.row_end = std::min(end * packed_tile_rows, update_.rank);
                     mine.scratch = scratch + worker * scratch_stride_;
                     context.kernels.float_linear(mine);
                   });
  const int64_t blocks = (update_.outputs + output_block - 1) / output_block;
  context.pool.run(blocks, grain_of(context.pool, blocks, rows * output_block * update_.rank),
                   [&](int64_t begin, int64_t end, int) {
                     const int64_t first = begin * output_block;
                     const int64_t last = std::min(end * output_block, update_.outputs);
                     for (int64_t row = 0; row < rows; ++row) {
                       float* out = y + row * update_.outputs;
                       for (int64_t k = 0; k < update_.rank; ++k) {
                         const float factor = hidden_[static_cast<size_t>(row * update_.rank + k)];
                         const float* up = update_.up.data() + k * update_.outputs;
                         for (int64_t o = first; o < last; ++o) out[o] += factor * up[o];
                       }
                       if (update_.gain.empty()) continue;
                       for (int64_t o = first; o < last; ++o) {
                         const float base = bias != nullptr ? bias[o] : 0;
                         out[o] = update_.gain[static_cast<size_t>(o)] * (out[o] - base) + base;
                       }
                     }
                   });
}

}  // namespace hexlm
