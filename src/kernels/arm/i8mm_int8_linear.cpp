#include "kernels/arm/arm_kernels.hpp"
#include "kernels/arm/dot_product.hpp"

namespace hexlm::i8mm {

namespace {

/// Blocks by SMMLA: eight columns of two rows × two tokens an instruction. A single token, which would leave
/// half of it idle, goes by SDOT.
template <int Bits>
struct MatrixProduct {
  static constexpr int bits = Bits;
  static constexpr int most_tokens = 8;

  template <int Tokens>
  static void add(const std::byte* codes, const int8_t* x, int64_t x_stride, int64_t columns,
                  BlockSums<Tokens>& sums) {
    if constexpr (Tokens == 1) {
      DotProduct<Bits>::template add<1>(codes, x, x_stride, columns, sums);
    } else {
      // Eight rows at a time: 4 pairs of rows × 4 pairs of tokens are what the registers hold.
      add_half<0>(codes, x, x_stride, columns, sums);
      add_half<1>(codes, x, x_stride, columns, sums);
    }
  }

 private:
  template <int Half, int Tokens>
  static void add_half(const std::byte* codes, const int8_t* x, int64_t x_stride, int64_t columns,
                       BlockSums<Tokens>& sums) {
    constexpr int pairs = (Tokens + 1) / 2;
    int32x4_t squares[pairs][4];
    for (auto& pair : squares) {
      for (int32x4_t& square : pair) square = vdupq_n_s32(0);
    }
    for (int64_t column = 0; column < columns; column += 8, codes += 8 * 16 * Bits / 8) {
      int8x16_t values[pairs];
      unroll<pairs>([&](auto pair) __attribute__((always_inline)) {
        // The last token of an odd number is its own partner; that half of the square is not used.
        constexpr int second = pair * 2 + 1 < Tokens ? pair * 2 + 1 : pair * 2;
        values[pair] =
            vcombine_s8(vld1_s8(x + pair * 2 * x_stride + column), vld1_s8(x + second * x_stride + column));
      });
      unroll<2>([&](auto quad) __attribute__((always_inline)) {
        int8x16_t rows[2];
        row_pairs(codes, Half * 2 + quad, rows);
        unroll<2>([&](auto row) __attribute__((always_inline)) {
          unroll<pairs>([&](auto pair) __attribute__((always_inline)) {
            int32x4_t& square = squares[pair][quad * 2 + row];
            square = vmmlaq_s32(square, rows[row], values[pair]);
          });
        });
      });
    }
    unroll<pairs>([&](auto pair) __attribute__((always_inline)) {
      unroll<2>([&](auto quad) __attribute__((always_inline)) {
        const int32x4_t upper = squares[pair][quad * 2];
        const int32x4_t lower = squares[pair][quad * 2 + 1];
        int32x4_t& first = sums[pair * 2][Half * 2 + quad];
        first = vaddq_s32(first, vuzp1q_s32(upper, lower));
        if constexpr (pair * 2 + 1 < Tokens) {
          int32x4_t& second = sums[pair * 2 + 1][Half * 2 + quad];
          second = vaddq_s32(second, vuzp2q_s32(upper, lower));
        }
      });
    });
  }

  /// Eight columns of rows 4 i … 4 i + 3 as two pairs of rows.
  [[gnu::always_inline]] static inline void row_pairs(const std::byte* codes, int i, int8x16_t (&rows)[2]) {
    int8x16_t first;
    int8x16_t second;
    if constexpr (Bits == 8) {
      first = signed_codes(codes + i * 16);
      second = signed_codes(codes + 64 + i * 16);
    } else {
      const Nibbles weights(codes + i * 16);
      first = weights.first;
      second = weights.second;
    }
    const int32x4_t left = vreinterpretq_s32_s8(first);
    const int32x4_t right = vreinterpretq_s32_s8(second);
    rows[0] = vreinterpretq_s8_s32(vzip1q_s32(left, right));
    rows[1] = vreinterpretq_s8_s32(vzip2q_s32(left, right));
  }
};

}  // namespace

void int8_linear(const Int8LinearArguments& arguments) { arm_int8_linear<MatrixProduct>(arguments); }

}  // namespace hexlm::i8mm
