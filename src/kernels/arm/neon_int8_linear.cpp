#include "kernels/arm/arm_kernels.hpp"
#include "kernels/arm/int8_tile.hpp"

namespace hexlm::neon {

namespace {

/// Blocks by widening multiplications, for processors without dot products (Cortex-A72 and older).
template <int Bits>
struct WideningProduct {
  static constexpr int bits = Bits;
  static constexpr int most_tokens = 2;

  template <int Tokens>
  static void add(const std::byte* codes, const int8_t* x, int64_t x_stride, int64_t columns,
                  BlockSums<Tokens>& sums) {
    // Two vectors of rows at a time, for the sake of registers.
    add_half<0>(codes, x, x_stride, columns, sums);
    add_half<1>(codes, x, x_stride, columns, sums);
  }

 private:
  static constexpr int rows_of_half = 2;  // vectors of four rows

  static int8x8_t broadcast_quad(const int8_t* from) {
    int32_t quad = 0;
    std::memcpy(&quad, from, sizeof quad);
    return vreinterpret_s8_s32(vdup_n_s32(quad));
  }

  template <int Half, int Tokens>
  static void add_half(const std::byte* codes, const int8_t* x, int64_t x_stride, int64_t columns,
                       BlockSums<Tokens>& sums) {
    // Sums of products of two neighbouring rows' four columns.
    int32x4_t wide[Tokens][rows_of_half][2];
    for (auto& token : wide) {
      for (auto& rows : token) rows[0] = rows[1] = vdupq_n_s32(0);
    }
    for (int64_t column = 0; column < columns; column += columns_at_once) {
      for (int i = 0; i < rows_of_half; ++i) {
        const std::byte* from = codes + (Half * rows_of_half + i) * 16;
        unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
          int16x8_t products[2];
          multiply(from, x + token * x_stride + column, products);
          wide[token][i][0] = vpadalq_s16(wide[token][i][0], products[0]);
          wide[token][i][1] = vpadalq_s16(wide[token][i][1], products[1]);
        });
      }
      codes += columns_at_once * 16 * Bits / 8;
    }
    for (int token = 0; token < Tokens; ++token) {
      for (int i = 0; i < rows_of_half; ++i) {
        int32x4_t& sum = sums[token][Half * rows_of_half + i];
        sum = vaddq_s32(sum, vpaddq_s32(wide[token][i][0], wide[token][i][1]));
      }
    }
  }

  /// Products that a 16-bit sum holds: 2 · 128 · 127 and 8 · 15 · 127 are both below 2¹⁵.
  static constexpr int64_t columns_at_once = Bits == 8 ? 8 : 32;

  /// Sums over the columns, by their place in a group of four: [0] of rows 0 and 1, [1] of rows 2 and 3.
  static void multiply(const std::byte* codes, const int8_t* x, int16x8_t (&products)[2]) {
    products[0] = products[1] = vdupq_n_s16(0);
    for (int64_t column = 0; column < columns_at_once; column += 8, codes += 8 * 16 * Bits / 8) {
      const int8x8_t first = broadcast_quad(x + column);
      const int8x8_t second = broadcast_quad(x + column + 4);
      int8x16_t left;
      int8x16_t right;
      if constexpr (Bits == 8) {
        left = signed_codes(codes);
        right = signed_codes(codes + 64);
      } else {
        const Nibbles weights(codes);
        left = weights.first;
        right = weights.second;
      }
      products[0] = vmlal_s8(vmlal_s8(products[0], vget_low_s8(left), first), vget_low_s8(right), second);
      products[1] = vmlal_s8(vmlal_s8(products[1], vget_high_s8(left), first), vget_high_s8(right), second);
    }
  }
};

}  // namespace

void int8_linear(const Int8LinearArguments& arguments) { arm_int8_linear<WideningProduct>(arguments); }

}  // namespace hexlm::neon
