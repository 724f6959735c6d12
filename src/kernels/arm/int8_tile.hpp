#pragma once

#include <arm_neon.h>
#include <cstring>

#include "kernels/generic/int8_driver.hpp"
#include "kernels/generic/unroll.hpp"

/// Int8 matrix products for 64-bit ARM: what the instruction sets share. Internal and static, see
/// generic/unroll.hpp.
namespace hexlm {
namespace {

/// A tile's 16 rows as vectors of four.
constexpr int row_quads = 4;

/// The integer sums of a block: dots[token][i], lane j, is row 4 i + j.
template <int Tokens>
using BlockSums = int32x4_t[Tokens][row_quads];

/// 16 bytes of codes as signed numbers: 8-bit codes are read as code − 128.
inline int8x16_t signed_codes(const std::byte* from) {
  const uint8x16_t codes = vld1q_u8(reinterpret_cast<const uint8_t*>(from));
  return vreinterpretq_s8_u8(veorq_u8(codes, vdupq_n_u8(0x80)));
}

/// 16 bytes of 4-bit codes: the first of two neighbouring groups of four columns in the low nibbles.
struct Nibbles {
  explicit Nibbles(const std::byte* from) {
    const uint8x16_t both = vld1q_u8(reinterpret_cast<const uint8_t*>(from));
    first = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
    second = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
  }
  int8x16_t first;
  int8x16_t second;
};

/// One tile of 16 rows × Tokens tokens over a range of blocks. Product: `bits`, and `add<Tokens>(codes, x,
/// x_stride, columns, sums)`, which adds Σ code · x of a block, codes as the functions above read them.
template <class Product, bool Asymmetric, int Tokens>
class Int8RegisterTile {
 public:
  explicit Int8RegisterTile(const Int8Tile& work)
      : work_(work), weight_(*work.arguments->weight), group_(weight_, work.block_begin) {
    const QuantizedRows& x = work.arguments->x;
    blocks_ = x.padded_columns / weight_.block;
    x_stride_ = x.padded_columns;
    x_ = x.values + work.token * x_stride_;
    x_scales_ = x.scales + work.token * blocks_;
    x_sums_ = x.sums + work.token * blocks_;
  }

  void run() {
    load_sums();
    const std::byte* codes = weight_.codes + work_.tile * int8_tile_bytes(weight_, weight_.padded_columns);
    for (int64_t block = work_.block_begin; block < work_.block_end; ++block) {
      BlockSums<Tokens> sums;
      unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
        const int32_t start = (read_as - weight_.zero_code) * x_sums_[token * blocks_ + block];
        for (int i = 0; i < row_quads; ++i) sums[token][i] = vdupq_n_s32(start);
      });
      Product::template add<Tokens>(codes + int8_tile_bytes(weight_, block * weight_.block),
                                    x_ + block * weight_.block, x_stride_, weight_.block, sums);
      scale(block, sums);
      group_.next();
    }
    store_sums();
  }

 private:
  static constexpr int read_as = Product::bits == 8 ? 128 : 0;

  float* output(int token) const {
    return work_.arguments->y + (work_.token + token) * work_.arguments->y_stride +
           work_.tile * packed_tile_rows;
  }

  size_t used_bytes() const {
    const int64_t left = weight_.rows - work_.tile * packed_tile_rows;
    return static_cast<size_t>(left < packed_tile_rows ? left : packed_tile_rows) * sizeof(float);
  }

  void load_sums() {
    std::memset(sums_, 0, sizeof sums_);
    const float* bias = work_.arguments->bias;
    for (int token = 0; token < Tokens; ++token) {
      const float* from = bias != nullptr ? bias + work_.tile * packed_tile_rows : nullptr;
      if (work_.block_begin > 0) from = output(token);
      if (from != nullptr) std::memcpy(sums_[token], from, used_bytes());
    }
  }

  void store_sums() {
    for (int token = 0; token < Tokens; ++token) std::memcpy(output(token), sums_[token], used_bytes());
  }

  static float32x4_t half_floats(const uint16_t* from) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
  }

  /// In the order of the x86 kernels, so that all give the same floats.
  void scale(int64_t block, const BlockSums<Tokens>& sums) {
    const int64_t slot = (work_.tile * weight_.groups + group_.index) * packed_tile_rows;
    for (int i = 0; i < row_quads; ++i) {
      const float32x4_t scales = half_floats(weight_.scales + slot + i * 4);
      const float32x4_t offsets = Asymmetric ? half_floats(weight_.offsets + slot + i * 4) : vdupq_n_f32(0);
      unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
        const int64_t x_slot = token * blocks_ + block;
        const float x_scale = x_scales_[x_slot];
        float* total = sums_[token] + i * 4;
        float32x4_t value =
            vfmaq_f32(vld1q_f32(total), vcvtq_f32_s32(sums[token][i]), vmulq_n_f32(scales, x_scale));
        if constexpr (Asymmetric) {
          value = vfmaq_n_f32(value, offsets, x_scale * static_cast<float>(x_sums_[x_slot]));
        }
        vst1q_f32(total, value);
      });
    }
  }

  const Int8Tile work_;
  const PackedMatrix& weight_;
  int64_t blocks_;
  int64_t x_stride_;
  const int8_t* x_;
  const float* x_scales_;
  const int32_t* x_sums_;
  /// In memory: the block's own sums take the registers, and this is read once a block.
  alignas(16) float sums_[Tokens][packed_tile_rows];
  BlockGroup group_;
};

template <class Product, bool Asymmetric>
struct ArmInt8Kernel {
  static constexpr int64_t tokens = Product::most_tokens;
  static constexpr int64_t pair_from = INT64_MAX;  // one tile fills the registers

  template <int Tiles>
  static void run(const Int8Tile& work, int count) {
    unroll<Product::most_tokens>([&](auto i) __attribute__((always_inline)) {
      if (count == i + 1) Int8RegisterTile<Product, Asymmetric, i + 1>(work).run();
    });
  }
};

/// Product<Bits> as described above.
template <template <int> class Product>
void arm_int8_linear(const Int8LinearArguments& arguments) {
  const bool asymmetric = arguments.weight->offsets != nullptr;
  if (arguments.weight->bits == 4) {
    return asymmetric ? int8_drive<ArmInt8Kernel<Product<4>, true>>(arguments)
                      : int8_drive<ArmInt8Kernel<Product<4>, false>>(arguments);
  }
  return asymmetric ? int8_drive<ArmInt8Kernel<Product<8>, true>>(arguments)
                    : int8_drive<ArmInt8Kernel<Product<8>, false>>(arguments);
}

}  // namespace
}  // namespace hexlm
