#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/generic/unroll.hpp"
#include "kernels/x86/intrinsics.hpp"

/// The vector type of the kernels in generic/ for AVX2 with FMA and F16C; see avx512_vector.hpp for what the
/// operations mean. Static, see generic/unroll.hpp.
namespace hexlm::avx2 {
namespace {

struct Vector {
  static constexpr int lanes = 8;
  static constexpr int tile_rows = 6;
  static constexpr int tile_tokens = 2;

  __m256 v;

  Vector() : v(_mm256_setzero_ps()) {}
  Vector(__m256 value) : v(value) {}
  explicit Vector(float value) : v(_mm256_set1_ps(value)) {}

  static __m256i first(int64_t count) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index);
  }
  static Vector load(const void* from) { return _mm256_loadu_ps(static_cast<const float*>(from)); }
  static Vector load_some(const float* from, int64_t count) { return _mm256_maskload_ps(from, first(count)); }
  void store(float* to) const { _mm256_storeu_ps(to, v); }
  void store_some(float* to, int64_t count) const { _mm256_maskstore_ps(to, first(count), v); }

  static Vector load_half(const void* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  }
  static Vector load_half_some(const void* from, int64_t count) {
    uint16_t some[lanes] = {};
    std::memcpy(some, from, static_cast<size_t>(count < lanes ? count : lanes) * sizeof(uint16_t));
    return load_half(some);
  }
  static Vector load_int8(const void* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(from))));
  }
  static Vector load_int8_some(const void* from, int64_t count) {
    int8_t some[lanes] = {};
    std::memcpy(some, from, static_cast<size_t>(count < lanes ? count : lanes));
    return load_int8(some);
  }
  void store_int8(int8_t* to) const {
    const __m256i whole = _mm256_cvtps_epi32(v);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
  }
  void store_int8_some(int8_t* to, int64_t count) const {
    int8_t all[lanes];
    store_int8(all);
    std::memcpy(to, all, static_cast<size_t>(count < lanes ? count : lanes));
  }
  static float from_half(uint16_t bits) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits))); }
  static Vector load_bfloat16(const void* from) {
    const __m128i bits = _mm_loadu_si128(static_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  void store_half(uint16_t* to) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  void store_half_some(uint16_t* to, int64_t count) const {
    uint16_t all[lanes];
    store_half(all);
    std::memcpy(to, all, static_cast<size_t>(count < lanes ? count : lanes) * sizeof(uint16_t));
  }

  friend Vector operator+(Vector a, Vector b) { return _mm256_add_ps(a.v, b.v); }
  friend Vector operator-(Vector a, Vector b) { return _mm256_sub_ps(a.v, b.v); }
  friend Vector operator*(Vector a, Vector b) { return _mm256_mul_ps(a.v, b.v); }
  friend Vector operator/(Vector a, Vector b) { return _mm256_div_ps(a.v, b.v); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a.v, b.v, c.v); }
  static Vector fnma(Vector a, Vector b, Vector c) { return _mm256_fnmadd_ps(a.v, b.v, c.v); }
  static Vector max(Vector a, Vector b) { return _mm256_max_ps(a.v, b.v); }
  static Vector min(Vector a, Vector b) { return _mm256_min_ps(a.v, b.v); }
  static Vector round(Vector a) {
    return _mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  /// In two steps, each a normal power of two, so that subnormal and overflowing results round as they
  /// should.
  static Vector scale_by_power(Vector a, Vector n) {
    const __m256i whole = _mm256_cvtps_epi32(n.v);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return a * power(half) * power(_mm256_sub_epi32(whole, half));
  }

  float sum() const {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  float largest() const {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  Vector first_or(int64_t count, float other) const {
    return _mm256_blendv_ps(_mm256_set1_ps(other), v, _mm256_castsi256_ps(first(count)));
  }

  struct DoubleSum {
    __m256d low = _mm256_setzero_pd();
    __m256d high = _mm256_setzero_pd();
    void add(Vector a, Vector b) {
      low = _mm256_fmadd_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(a.v)),
                            _mm256_cvtps_pd(_mm256_castps256_ps128(b.v)), low);
      high = _mm256_fmadd_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(a.v, 1)),
                             _mm256_cvtps_pd(_mm256_extractf128_ps(b.v, 1)), high);
    }
    double total() const {
      const __m256d four = _mm256_add_pd(low, high);
      const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
      return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
    }
  };

  static void transpose(Vector (&rows)[lanes]) {
    __m256 pairs[lanes];
    unroll<4>([&](auto step) __attribute__((always_inline)) {
      constexpr int i = step * 2;
      pairs[i] = _mm256_unpacklo_ps(rows[i].v, rows[i + 1].v);
      pairs[i + 1] = _mm256_unpackhi_ps(rows[i].v, rows[i + 1].v);
    });
    __m256 fours[lanes];
    unroll<2>([&](auto step) __attribute__((always_inline)) {
      constexpr int i = step * 4;
      fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
      fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
      fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
      fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
    });
    unroll<4>([&](auto step) __attribute__((always_inline)) {
      constexpr int i = step * 1;
      rows[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
      rows[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    });
  }

  static void load_fours(const float* from, Vector (&out)[4]) {
    const __m256 parts[4] = {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8), _mm256_loadu_ps(from + 16),
                             _mm256_loadu_ps(from + 24)};
    // Rows 0 | 4, 1 | 5, 2 | 6, 3 | 7 in the two halves, then a 4 × 4 transposition in each.
    const __m256 a = _mm256_permute2f128_ps(parts[0], parts[2], 0x20);
    const __m256 b = _mm256_permute2f128_ps(parts[0], parts[2], 0x31);
    const __m256 c = _mm256_permute2f128_ps(parts[1], parts[3], 0x20);
    const __m256 d = _mm256_permute2f128_ps(parts[1], parts[3], 0x31);
    const __m256 ab_low = _mm256_unpacklo_ps(a, b);
    const __m256 ab_high = _mm256_unpackhi_ps(a, b);
    const __m256 cd_low = _mm256_unpacklo_ps(c, d);
    const __m256 cd_high = _mm256_unpackhi_ps(c, d);
    out[0] = _mm256_shuffle_ps(ab_low, cd_low, 0x44);
    out[1] = _mm256_shuffle_ps(ab_low, cd_low, 0xEE);
    out[2] = _mm256_shuffle_ps(ab_high, cd_high, 0x44);
    out[3] = _mm256_shuffle_ps(ab_high, cd_high, 0xEE);
  }

  class Codes {
   public:
    explicit Codes(int bits) {
      alignas(32) uint8_t places[32];
      alignas(32) int32_t shifts[8];
      for (int i = 0; i < 8; ++i) {
        const int bit = i * bits;
        const uint8_t place[4] = {static_cast<uint8_t>(bit / 8), static_cast<uint8_t>(bit / 8 + 1), 0x80,
                                  0x80};
        std::memcpy(places + i * 4, place, 4);
        shifts[i] = bit % 8;
      }
      places_ = _mm256_load_si256(reinterpret_cast<const __m256i*>(places));
      shifts_ = _mm256_load_si256(reinterpret_cast<const __m256i*>(shifts));
      mask_ = _mm256_set1_epi32((1 << bits) - 1);
    }
    Vector load(const std::byte* from, const std::byte* end) const {
      int64_t word = 0;
      if (end - from >= 8) {
        std::memcpy(&word, from, sizeof word);
      } else {
        std::memcpy(&word, from, static_cast<size_t>(end - from));
      }
      const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi64x(word), places_);
      return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(spread, shifts_), mask_));
    }

   private:
    __m256i places_;
    __m256i shifts_;
    __m256i mask_;
  };

 private:
  static Vector power(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

}  // namespace
}  // namespace hexlm::avx2
