#include <cstring>

#include "kernels/generic/int8_driver.hpp"
#include "kernels/generic/unroll.hpp"
#include "kernels/x86/intrinsics.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx2 {

namespace {

constexpr int register_tokens = 4;
/// As in the AVX-512 kernel: memory latency times a core's bandwidth.
constexpr int64_t stream_ahead = 2048;
/// 16-bit sums of 4-bit products hold this many groups of four columns: 8 · 2 · 15 · 127 < 2¹⁵.
constexpr int64_t columns_per_short_sum = 32;
constexpr int halves = 2;  // a tile's 16 rows as 2 × 8

__m256i broadcast_quad(const int8_t* from) {
  int32_t quad = 0;
  std::memcpy(&quad, from, sizeof quad);
  return _mm256_set1_epi32(quad);
}

__m256 half_floats(const uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

__m256i load_codes(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

/// One tile of 16 rows × Tokens tokens over a range of blocks.
template <int Bits, bool Asymmetric, int Tokens>
class RegisterTile {
 public:
  explicit RegisterTile(const Int8Tile& work)
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
      // A half at a time: its sums of three kinds are what 16 registers can hold.
      unroll<halves>([&](auto half) __attribute__((always_inline)) {
        __m256i dots[Tokens];
        multiply(block, codes + int8_tile_bytes(weight_, block * weight_.block) + half * 32, dots);
        scale(block, half, dots);
      });
      group_.next();
    }
    store_sums();
  }

 private:
  float* output(int token) const {
    return work_.arguments->y + (work_.token + token) * work_.arguments->y_stride +
           work_.tile * packed_tile_rows;
  }

  int64_t used_rows() const {
    const int64_t left = weight_.rows - work_.tile * packed_tile_rows;
    return left < packed_tile_rows ? left : packed_tile_rows;
  }

  void load_sums() {
    const int64_t rows = used_rows();
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
      float start[packed_tile_rows] = {};
      const float* from = work_.arguments->bias;
      if (from != nullptr) from += work_.tile * packed_tile_rows;
      if (work_.block_begin > 0) from = output(token);
      if (from != nullptr) std::memcpy(start, from, static_cast<size_t>(rows) * sizeof(float));
      unroll<halves>([&](auto half) __attribute__((always_inline)) {
        sums_[token][half] = _mm256_loadu_ps(start + half * 8);
      });
    });
  }

  void store_sums() {
    const int64_t rows = used_rows();
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
      float end[packed_tile_rows];
      unroll<halves>([&](auto half) __attribute__((always_inline)) {
        _mm256_storeu_ps(end + half * 8, sums_[token][half]);
      });
      std::memcpy(output(token), end, static_cast<size_t>(rows) * sizeof(float));
    });
  }

  /// Σ (code − zero code) · x of one block and half. 8-bit codes are read as code − 128, the signed form.
  void multiply(int64_t block, const std::byte* codes, __m256i (&dots)[Tokens]) {
    constexpr int read_as = Bits == 8 ? 128 : 0;
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
      dots[token] = _mm256_set1_epi32((read_as - weight_.zero_code) * x_sums_[token * blocks_ + block]);
    });
    const int8_t* x = x_ + block * weight_.block;
    if constexpr (Bits == 8) {
      for (int64_t column = 0; column < weight_.block; column += 4, codes += 64) {
        multiply_bytes(codes, x + column, dots);
      }
    } else {
      for (int64_t column = 0; column < weight_.block; column += columns_per_short_sum, codes += 256) {
        multiply_nibbles(codes, x + column, dots);
      }
    }
  }

  static void prefetch(const std::byte* codes) {
    if constexpr (Tokens < register_tokens) {
      _mm_prefetch(reinterpret_cast<const char*>(codes + stream_ahead), _MM_HINT_T0);
    }
  }

  /// 32 columns. maddubs adds neighbouring products in 16 bits, enough for eight of these (see above).
  void multiply_nibbles(const std::byte* codes, const int8_t* x, __m256i (&dots)[Tokens]) {
    __m256i shorts[Tokens];
    unroll<Tokens>([&](auto token)
                       __attribute__((always_inline)) { shorts[token] = _mm256_setzero_si256(); });
    const __m256i mask = _mm256_set1_epi8(15);
    for (int64_t column = 0; column < columns_per_short_sum; column += 8, codes += 64) {
      prefetch(codes);
      const __m256i both = load_codes(codes);
      const __m256i first = _mm256_and_si256(both, mask);
      const __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
      unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
        const int8_t* from = x + token * x_stride_ + column;
        const __m256i products = _mm256_add_epi16(_mm256_maddubs_epi16(first, broadcast_quad(from)),
                                                  _mm256_maddubs_epi16(second, broadcast_quad(from + 4)));
        shorts[token] = _mm256_add_epi16(shorts[token], products);
      });
    }
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
      const __m256i wide = _mm256_madd_epi16(shorts[token], _mm256_set1_epi16(1));
      dots[token] = _mm256_add_epi32(dots[token], wide);
    });
  }

  /// Four columns. |w| ≤ 128 as unsigned times x with w's sign, |x| ≤ 127: two products fit 16 bits
  /// (2 · 128 · 127 < 2¹⁵), where the plain code · x, up to 255 · 127, would saturate.
  void multiply_bytes(const std::byte* codes, const int8_t* x, __m256i (&dots)[Tokens]) {
    prefetch(codes);
    const __m256i weights = _mm256_xor_si256(load_codes(codes), _mm256_set1_epi8(-128));
    const __m256i magnitudes = _mm256_abs_epi8(weights);
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
      const __m256i quad = _mm256_sign_epi8(broadcast_quad(x + token * x_stride_), weights);
      const __m256i pairs = _mm256_maddubs_epi16(magnitudes, quad);
      dots[token] = _mm256_add_epi32(dots[token], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    });
  }

  /// In the order of the AVX-512 kernel, so that both give the same floats.
  void scale(int64_t block, int half, const __m256i (&dots)[Tokens]) {
    const int64_t slot = (work_.tile * weight_.groups + group_.index) * packed_tile_rows + half * 8;
    const __m256 scales = half_floats(weight_.scales + slot);
    const __m256 offsets = Asymmetric ? half_floats(weight_.offsets + slot) : _mm256_setzero_ps();
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
      const int64_t x_slot = token * blocks_ + block;
      const float x_scale = x_scales_[x_slot];
      const __m256 factor = _mm256_mul_ps(scales, _mm256_set1_ps(x_scale));
      __m256 sums = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[token]), factor, sums_[token][half]);
      if constexpr (Asymmetric) {
        const float x_sum = x_scale * static_cast<float>(x_sums_[x_slot]);
        sums = _mm256_fmadd_ps(offsets, _mm256_set1_ps(x_sum), sums);
      }
      sums_[token][half] = sums;
    });
  }

  const Int8Tile work_;
  const PackedMatrix& weight_;
  int64_t blocks_;
  int64_t x_stride_;
  const int8_t* x_;
  const float* x_scales_;
  const int32_t* x_sums_;
  __m256 sums_[Tokens][halves];
  BlockGroup group_;
};

template <int Bits, bool Asymmetric>
struct Kernel {
  static constexpr int64_t tokens = register_tokens;
  static constexpr int64_t pair_from = INT64_MAX;  // one tile fills the 16 registers

  template <int Tiles>
  static void run(const Int8Tile& work, int count) {
    switch (count) {
      case 1:
        return RegisterTile<Bits, Asymmetric, 1>(work).run();
      case 2:
        return RegisterTile<Bits, Asymmetric, 2>(work).run();
      case 3:
        return RegisterTile<Bits, Asymmetric, 3>(work).run();
      default:
        return RegisterTile<Bits, Asymmetric, 4>(work).run();
    }
  }
};

}  // namespace

void int8_linear(const Int8LinearArguments& arguments) {
  const bool asymmetric = arguments.weight->offsets != nullptr;
  if (arguments.weight->bits == 4) {
    return asymmetric ? int8_drive<Kernel<4, true>>(arguments) : int8_drive<Kernel<4, false>>(arguments);
  }
  return asymmetric ? int8_drive<Kernel<8, true>>(arguments) : int8_drive<Kernel<8, false>>(arguments);
}

}  // namespace hexlm::avx2
