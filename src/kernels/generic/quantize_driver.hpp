#pragma once

#include <cstring>

#include "kernels/kernels.hpp"

/// The order in which rows of activations are quantized, block by block. Internal and static, see unroll.hpp.
namespace hexlm {
namespace {

/// `quantize(x, block, values, scale, sum)` makes one whole block; where the row ends inside one, it is given
/// a copy that ends in zeros.
template <class Quantize>
void quantize_blocks(const float* x, int64_t x_stride, int64_t columns, QuantizedRows& out, int64_t row_begin,
                     int64_t row_end, Quantize&& quantize) {
  constexpr int64_t longest_block = 64;
  const int64_t blocks = out.padded_columns / out.block;
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = block * out.block;
      const float* from = x + row * x_stride + begin;
      float padded[longest_block] = {};
      if (begin + out.block > columns) {
        if (begin < columns) std::memcpy(padded, from, static_cast<size_t>(columns - begin) * sizeof(float));
        from = padded;
      }
      quantize(from, out.block, out.values + row * out.padded_columns + begin,
               out.scales[row * blocks + block], out.sums[row * blocks + block]);
    }
  }
}

}  // namespace
}  // namespace hexlm
