#pragma once

#include "kernels/arm/int8_tile.hpp"

/// Blocks by SDOT: four products of four rows an instruction. For files compiled with the dotprod extension.
namespace hexlm {
namespace {

template <int Bits>
struct DotProduct {
  static constexpr int bits = Bits;
  /// 4 tokens × 4 vectors of rows leave half of the registers to weights and activations.
  static constexpr int most_tokens = 4;

  template <int Tokens>
  static void add(const std::byte* codes, const int8_t* x, int64_t x_stride, int64_t columns,
                  BlockSums<Tokens>& sums) {
    for (int64_t column = 0; column < columns; column += 16) {
      int8x16_t values[Tokens];
      unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
        values[token] = vld1q_s8(x + token * x_stride + column);
      });
      if constexpr (Bits == 8) {
        unroll<4>([&](auto quad) __attribute__((always_inline)) {
          unroll<row_quads>([&](auto i) __attribute__((always_inline)) {
            add_quad<quad, Tokens>(signed_codes(codes + quad * 64 + i * 16), values, i, sums);
          });
        });
      } else {
        unroll<2>([&](auto pair) __attribute__((always_inline)) {
          unroll<row_quads>([&](auto i) __attribute__((always_inline)) {
            const Nibbles weights(codes + pair * 64 + i * 16);
            add_quad<pair * 2, Tokens>(weights.first, values, i, sums);
            add_quad<pair * 2 + 1, Tokens>(weights.second, values, i, sums);
          });
        });
      }
      codes += 16 * 16 * Bits / 8;
    }
  }

 private:
  /// Four columns of four rows.
  template <int Quad, int Tokens>
  [[gnu::always_inline]] static inline void add_quad(int8x16_t weights, const int8x16_t (&values)[Tokens],
                                                     int i, BlockSums<Tokens>& sums) {
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
      sums[token][i] = vdotq_laneq_s32(sums[token][i], weights, values[token], Quad);
    });
  }
};

}  // namespace
}  // namespace hexlm
