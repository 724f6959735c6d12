#pragma once

#include "kernels/kernels.hpp"

namespace hexlm {

/// Cache entries that attention takes at a time. Blocks begin at multiples of it whatever the call, so that a
/// query's result doesn't depend on which others are computed with it.
inline constexpr int64_t attention_entries = 32;
/// Query rows (heads × tokens) that use a block of keys, once transposed, before the next: enough to make the
/// transposition cheap, few enough for the second-level cache.
inline constexpr int64_t attention_rows = 48;

/// A register tile may be wider than the rows left; the extra ones repeat the last row and are thrown away.
inline constexpr int64_t attention_spare_rows = 12;

/// Floats of a worker's scratch: the transposed keys of a block, and for each query row its sums, its scores,
/// its greatest score and its sum of weights.
constexpr int64_t attention_tile_floats(int64_t head_dim) {
  constexpr int64_t rows = attention_rows + attention_spare_rows;
  const int64_t floats = head_dim * attention_entries + rows * (head_dim + attention_entries + 2);
  return (floats + 15) / 16 * 16;
}

}  // namespace hexlm
