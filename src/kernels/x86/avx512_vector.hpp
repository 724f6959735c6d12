#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/generic/unroll.hpp"
#include "kernels/x86/intrinsics.hpp"

/// The vector type of the kernels in generic/ for AVX-512. Static, see generic/unroll.hpp.
namespace hexlm::avx512 {
namespace {

struct Vector {
  static constexpr int lanes = 16;
  /// Register tiles that fit 32 registers: rows × 2 vectors of attention, and tokens × 2 vectors of a
  /// matrix product.
  static constexpr int tile_rows = 12;
  static constexpr int tile_tokens = 12;

  __m512 v;

  Vector() : v(_mm512_setzero_ps()) {}
  Vector(__m512 value) : v(value) {}
  explicit Vector(float value) : v(_mm512_set1_ps(value)) {}

  static __mmask16 first(int64_t count) {
    return count >= lanes ? __mmask16{0xFFFF} : static_cast<__mmask16>((1U << count) - 1U);
  }
  static Vector load(const void* from) { return _mm512_loadu_ps(from); }
  /// The first `count` (0 … lanes) elements, zeros after them.
  static Vector load_some(const float* from, int64_t count) {
    return _mm512_maskz_loadu_ps(first(count), from);
  }
  void store(float* to) const { _mm512_storeu_ps(to, v); }
  void store_some(float* to, int64_t count) const { _mm512_mask_storeu_ps(to, first(count), v); }

  static Vector load_half(const void* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
  }
  static Vector load_half_some(const void* from, int64_t count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(count), from));
  }
  static Vector load_int8(const void* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(from))));
  }
  static Vector load_int8_some(const void* from, int64_t count) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first(count), from)));
  }
  /// Rounded to nearest even; magnitudes up to 127.
  __m128i to_int8() const { return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)); }
  void store_int8(int8_t* to) const { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), to_int8()); }
  void store_int8_some(int8_t* to, int64_t count) const { _mm_mask_storeu_epi8(to, first(count), to_int8()); }
  static float from_half(uint16_t bits) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))); }
  static Vector load_bfloat16(const void* from) {
    const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  __m256i to_half() const { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  void store_half(uint16_t* to) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), to_half()); }
  void store_half_some(uint16_t* to, int64_t count) const {
    _mm256_mask_storeu_epi16(to, first(count), to_half());
  }

  friend Vector operator+(Vector a, Vector b) { return _mm512_add_ps(a.v, b.v); }
  friend Vector operator-(Vector a, Vector b) { return _mm512_sub_ps(a.v, b.v); }
  friend Vector operator*(Vector a, Vector b) { return _mm512_mul_ps(a.v, b.v); }
  friend Vector operator/(Vector a, Vector b) { return _mm512_div_ps(a.v, b.v); }
  /// a · b + c and c − a · b, rounded once.
  static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a.v, b.v, c.v); }
  static Vector fnma(Vector a, Vector b, Vector c) { return _mm512_fnmadd_ps(a.v, b.v, c.v); }
  /// NaN in b is kept.
  static Vector max(Vector a, Vector b) { return _mm512_max_ps(a.v, b.v); }
  static Vector min(Vector a, Vector b) { return _mm512_min_ps(a.v, b.v); }
  static Vector round(Vector a) {
    return _mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  /// a · 2^n for whole n in −252 … 254, through the subnormal range.
  static Vector scale_by_power(Vector a, Vector n) { return _mm512_scalef_ps(a.v, n.v); }

  float sum() const { return _mm512_reduce_add_ps(v); }
  float largest() const { return _mm512_reduce_max_ps(v); }
  /// Elements from `count` on become `other`.
  Vector first_or(int64_t count, float other) const {
    return _mm512_mask_blend_ps(first(count), _mm512_set1_ps(other), v);
  }

  /// Σ a · b in double.
  struct DoubleSum {
    __m512d low = _mm512_setzero_pd();
    __m512d high = _mm512_setzero_pd();
    void add(Vector a, Vector b) {
      low = _mm512_fmadd_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(a.v)),
                            _mm512_cvtps_pd(_mm512_castps512_ps256(b.v)), low);
      high = _mm512_fmadd_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1)),
                             _mm512_cvtps_pd(_mm512_extractf32x8_ps(b.v, 1)), high);
    }
    double total() const { return _mm512_reduce_add_pd(_mm512_add_pd(low, high)); }
  };

  /// Rows become columns.
  static void transpose(Vector (&rows)[lanes]) {
    __m512 pairs[lanes];
    unroll<8>([&](auto step) __attribute__((always_inline)) {
      constexpr int i = step * 2;
      pairs[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
      pairs[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
    });
    __m512 fours[lanes];
    unroll<4>([&](auto step) __attribute__((always_inline)) {
      constexpr int i = step * 4;
      fours[i] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
      fours[i + 1] = _mm512_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
      fours[i + 2] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
      fours[i + 3] = _mm512_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
    });
    // fours[4 g + c] now holds, in its 128-bit lane l, column 4 l + c of rows 4 g … 4 g + 3.
    unroll<4>([&](auto step) __attribute__((always_inline)) {
      constexpr int c = step * 1;
      const __m512 low01 = _mm512_shuffle_f32x4(fours[c], fours[c + 4], 0x44);
      const __m512 high01 = _mm512_shuffle_f32x4(fours[c], fours[c + 4], 0xEE);
      const __m512 low23 = _mm512_shuffle_f32x4(fours[c + 8], fours[c + 12], 0x44);
      const __m512 high23 = _mm512_shuffle_f32x4(fours[c + 8], fours[c + 12], 0xEE);
      rows[c] = _mm512_shuffle_f32x4(low01, low23, 0x88);
      rows[c + 4] = _mm512_shuffle_f32x4(low01, low23, 0xDD);
      rows[c + 8] = _mm512_shuffle_f32x4(high01, high23, 0x88);
      rows[c + 12] = _mm512_shuffle_f32x4(high01, high23, 0xDD);
    });
  }

  /// Reads `lanes` rows of four floats each, one after another: out[i] is column i.
  static void load_fours(const float* from, Vector (&out)[4]) {
    const __m512i lanes_of_four = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512 parts[4] = {_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16), _mm512_loadu_ps(from + 32),
                             _mm512_loadu_ps(from + 48)};
    unroll<4>([&](auto step) __attribute__((always_inline)) {
      constexpr int i = step * 1;
      const __m512i index = _mm512_add_epi32(lanes_of_four, _mm512_set1_epi32(i));
      const __m512 low = _mm512_permutex2var_ps(parts[0], index, parts[1]);
      const __m512 high = _mm512_permutex2var_ps(parts[2], index, parts[3]);
      out[i] = _mm512_insertf32x8(low, _mm512_castps512_ps256(high), 1);
    });
  }

  /// Unpacks `lanes` neighbouring codes that begin on a byte.
  class Codes {
   public:
    explicit Codes(int bits) {
      alignas(64) uint8_t places[64];
      alignas(64) int32_t shifts[16];
      for (int i = 0; i < 16; ++i) {
        const int bit = i * bits;
        const uint8_t place[4] = {static_cast<uint8_t>(bit / 8), static_cast<uint8_t>(bit / 8 + 1), 0x80,
                                  0x80};
        std::memcpy(places + i * 4, place, 4);
        shifts[i] = bit % 8;
      }
      places_ = _mm512_load_si512(places);
      shifts_ = _mm512_load_si512(shifts);
      mask_ = _mm512_set1_epi32((1 << bits) - 1);
    }
    /// The codes as floats. Reads no byte at or beyond `end`.
    Vector load(const std::byte* from, const std::byte* end) const {
      const __m128i bytes =
          end - from >= 16 ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))
                           : _mm_maskz_loadu_epi8(static_cast<__mmask16>((1U << (end - from)) - 1U), from);
      const __m512i spread = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), places_);
      return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srlv_epi32(spread, shifts_), mask_));
    }

   private:
    __m512i places_;
    __m512i shifts_;
    __m512i mask_;
  };
};

}  // namespace
}  // namespace hexlm::avx512
