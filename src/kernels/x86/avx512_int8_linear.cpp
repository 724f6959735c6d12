#include <cstring>

#include "kernels/generic/int8_driver.hpp"
#include "kernels/generic/unroll.hpp"
#include "kernels/x86/intrinsics.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx512 {

namespace {

constexpr int register_tokens = 6;  // × 2 tiles: 12 integer and 12 float sums of 32 registers
/// How far ahead of the codes in use a lone token's stream is fetched: about the latency of memory (100 ns)
/// at a core's share of its bandwidth (20 GB/s).
constexpr int64_t stream_ahead = 2048;

__m512 halves(const uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

__m512i broadcast_quad(const int8_t* from) {
  int32_t quad = 0;
  std::memcpy(&quad, from, sizeof quad);
  return _mm512_set1_epi32(quad);
}

__mmask16 used_rows(const PackedMatrix& weight, int64_t tile) {
  const int64_t left = weight.rows - tile * packed_tile_rows;
  return left >= packed_tile_rows ? __mmask16{0xFFFF} : static_cast<__mmask16>((1U << left) - 1U);
}

/// Bits: 4 or 8. One register tile over a range of blocks.
template <int Bits, bool Asymmetric, int Tiles, int Tokens>
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
    for (int64_t block = work_.block_begin; block < work_.block_end; ++block) {
      multiply(block);
      scale(block);
      group_.next();
    }
    store_sums();
  }

 private:
  // A lone token would wait for one chain of dependent sums; the second chain is added at the end of a block.
  static constexpr int chains = Tiles * Tokens < 6 ? 2 : 1;

  float* output(int tile, int token) const {
    return work_.arguments->y + (work_.token + token) * work_.arguments->y_stride +
           (work_.tile + tile) * packed_tile_rows;
  }

  void load_sums() {
    unroll<Tiles>([&](auto tile) __attribute__((always_inline)) {
      const __mmask16 rows = used_rows(weight_, work_.tile + tile);
      const float* bias = work_.arguments->bias;
      unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
        if (work_.block_begin > 0) {
          sums_[tile][token] = _mm512_maskz_loadu_ps(rows, output(tile, token));
        } else if (bias != nullptr) {
          sums_[tile][token] = _mm512_maskz_loadu_ps(rows, bias + (work_.tile + tile) * packed_tile_rows);
        } else {
          sums_[tile][token] = _mm512_setzero_ps();
        }
      });
    });
  }

  void store_sums() {
    unroll<Tiles>([&](auto tile) __attribute__((always_inline)) {
      const __mmask16 rows = used_rows(weight_, work_.tile + tile);
      unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
        _mm512_mask_storeu_ps(output(tile, token), rows, sums_[tile][token]);
      });
    });
  }

  /// Σ (code − zero code) · x of one block: the second term, the block's sum of x, is where the sums start.
  void multiply(int64_t block) {
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
      const int32_t start = Asymmetric ? 0 : -weight_.zero_code * x_sums_[token * blocks_ + block];
      unroll<Tiles>([&](auto tile) __attribute__((always_inline)) {
        dots_[tile][token][0] = _mm512_set1_epi32(start);
        if constexpr (chains == 2) dots_[tile][token][1] = _mm512_setzero_si512();
      });
    });
    const int64_t tile_bytes = int8_tile_bytes(weight_, weight_.padded_columns);
    const std::byte* codes =
        weight_.codes + work_.tile * tile_bytes + int8_tile_bytes(weight_, block * weight_.block);
    const int8_t* x = x_ + block * weight_.block;
    for (int64_t column = 0; column < weight_.block; column += 8) {
      multiply_eight(codes, tile_bytes, x + column);
      codes += 128 * Bits / 8;
    }
  }

  /// Two groups of four columns.
  void multiply_eight(const std::byte* codes, int64_t tile_bytes, const int8_t* x) {
    __m512i first[Tiles];
    __m512i second[Tiles];
    unroll<Tiles>([&](auto tile) __attribute__((always_inline)) {
      const std::byte* from = codes + tile * tile_bytes;
      if constexpr (Tokens < register_tokens) {
        _mm_prefetch(reinterpret_cast<const char*>(from + stream_ahead), _MM_HINT_T0);
        if constexpr (Bits == 8) {
          _mm_prefetch(reinterpret_cast<const char*>(from + stream_ahead + 64), _MM_HINT_T0);
        }
      }
      first[tile] = _mm512_loadu_si512(from);
      if constexpr (Bits == 4) {
        const __m512i mask = _mm512_set1_epi8(15);
        second[tile] = _mm512_and_si512(_mm512_srli_epi16(first[tile], 4), mask);
        first[tile] = _mm512_and_si512(first[tile], mask);
      } else {
        second[tile] = _mm512_loadu_si512(from + 64);
      }
    });
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
      const __m512i quad = broadcast_quad(x + token * x_stride_);
      unroll<Tiles>([&](auto tile) __attribute__((always_inline)) {
        dots_[tile][token][0] = _mm512_dpbusd_epi32(dots_[tile][token][0], first[tile], quad);
      });
    });
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
      const __m512i quad = broadcast_quad(x + token * x_stride_ + 4);
      unroll<Tiles>([&](auto tile) __attribute__((always_inline)) {
        __m512i& dots = dots_[tile][token][chains - 1];
        dots = _mm512_dpbusd_epi32(dots, second[tile], quad);
      });
    });
  }

  /// sums += dots · (weight scale · activation scale) + offset · (activation scale · Σ x)
  void scale(int64_t block) {
    unroll<Tiles>([&](auto tile) __attribute__((always_inline)) {
      const int64_t slot = ((work_.tile + tile) * weight_.groups + group_.index) * packed_tile_rows;
      const __m512 scales = halves(weight_.scales + slot);
      const __m512 offsets = Asymmetric ? halves(weight_.offsets + slot) : _mm512_setzero_ps();
      unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
        const int64_t x_slot = token * blocks_ + block;
        const float x_scale = x_scales_[x_slot];
        __m512i dots = dots_[tile][token][0];
        if constexpr (chains == 2) dots = _mm512_add_epi32(dots, dots_[tile][token][1]);
        const __m512 factor = _mm512_mul_ps(scales, _mm512_set1_ps(x_scale));
        __m512 sums = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), factor, sums_[tile][token]);
        if constexpr (Asymmetric) {
          const float x_sum = x_scale * static_cast<float>(x_sums_[x_slot]);
          sums = _mm512_fmadd_ps(offsets, _mm512_set1_ps(x_sum), sums);
        }
        sums_[tile][token] = sums;
      });
    });
  }

  const Int8Tile work_;
  const PackedMatrix& weight_;
  int64_t blocks_;
  int64_t x_stride_;
  const int8_t* x_;
  const float* x_scales_;
  const int32_t* x_sums_;
  __m512 sums_[Tiles][Tokens];
  __m512i dots_[Tiles][Tokens][chains];
  BlockGroup group_;
};

template <int Bits, bool Asymmetric>
struct Kernel {
  static constexpr int64_t tokens = register_tokens;
  static constexpr int64_t pair_from = 3;

  template <int Tiles, int Tokens>
  static void run_exactly(const Int8Tile& work) {
    RegisterTile<Bits, Asymmetric, Tiles, Tokens>(work).run();
  }

  template <int Tiles>
  static void run(const Int8Tile& work, int count) {
    switch (count) {
      case 1:
        return run_exactly<Tiles, 1>(work);
      case 2:
        return run_exactly<Tiles, 2>(work);
      case 3:
        return run_exactly<Tiles, 3>(work);
      case 4:
        return run_exactly<Tiles, 4>(work);
      case 5:
        return run_exactly<Tiles, 5>(work);
      default:
        return run_exactly<Tiles, 6>(work);
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

}  // namespace hexlm::avx512
