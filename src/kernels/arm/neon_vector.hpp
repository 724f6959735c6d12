#pragma once

#include <arm_neon.h>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/generic/unroll.hpp"

/// The vector type of the kernels in generic/ for 64-bit ARM: two NEON registers, so that codes of any width
/// fill whole bytes; see x86/avx512_vector.hpp for what the operations mean. Static, see generic/unroll.hpp.
namespace hexlm::neon {
namespace {

struct Vector {
  static constexpr int lanes = 8;
  /// Register tiles that fit 32 registers, a vector being two.
  static constexpr int tile_rows = 6;
  static constexpr int tile_tokens = 2;

  float32x4_t low;
  float32x4_t high;

  Vector() : low(vdupq_n_f32(0)), high(vdupq_n_f32(0)) {}
  Vector(float32x4_t first, float32x4_t second) : low(first), high(second) {}
  explicit Vector(float value) : low(vdupq_n_f32(value)), high(low) {}

  static Vector load(const void* from) {
    const auto* floats = static_cast<const float*>(from);
    return {vld1q_f32(floats), vld1q_f32(floats + 4)};
  }
  static Vector load_some(const float* from, int64_t count) {
    float some[lanes] = {};
    std::memcpy(some, from, bytes_of<float>(count));
    return load(some);
  }
  void store(float* to) const {
    vst1q_f32(to, low);
    vst1q_f32(to + 4, high);
  }
  void store_some(float* to, int64_t count) const {
    float all[lanes];
    store(all);
    std::memcpy(to, all, bytes_of<float>(count));
  }

  static Vector load_half(const void* from) {
    const float16x8_t halves = vreinterpretq_f16_u16(load_u16(from));
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
  }
  static Vector load_half_some(const void* from, int64_t count) {
    uint16_t some[lanes] = {};
    std::memcpy(some, from, bytes_of<uint16_t>(count));
    return load_half(some);
  }
  static Vector load_int8(const void* from) {
    const int16x8_t words = vmovl_s8(vld1_s8(static_cast<const int8_t*>(from)));
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_high_s16(words))};
  }
  static Vector load_int8_some(const void* from, int64_t count) {
    int8_t some[lanes] = {};
    std::memcpy(some, from, bytes_of<int8_t>(count));
    return load_int8(some);
  }
  void store_int8(int8_t* to) const {
    const int16x4_t first = vqmovn_s32(vcvtnq_s32_f32(low));
    const int16x8_t words = vqmovn_high_s32(first, vcvtnq_s32_f32(high));
    vst1_s8(to, vqmovn_s16(words));
  }
  void store_int8_some(int8_t* to, int64_t count) const {
    int8_t all[lanes];
    store_int8(all);
    std::memcpy(to, all, bytes_of<int8_t>(count));
  }
  static float from_half(uint16_t bits) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
  }
  static Vector load_bfloat16(const void* from) {
    const uint16x8_t bits = load_u16(from);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16))};
  }
  void store_half(uint16_t* to) const {
    vst1q_u16(to, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high)));
  }
  void store_half_some(uint16_t* to, int64_t count) const {
    uint16_t all[lanes];
    store_half(all);
    std::memcpy(to, all, bytes_of<uint16_t>(count));
  }

  friend Vector operator+(Vector a, Vector b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
  friend Vector operator-(Vector a, Vector b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
  friend Vector operator*(Vector a, Vector b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
  friend Vector operator/(Vector a, Vector b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
  static Vector fma(Vector a, Vector b, Vector c) {
    return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
  }
  static Vector fnma(Vector a, Vector b, Vector c) {
    return {vfmsq_f32(c.low, a.low, b.low), vfmsq_f32(c.high, a.high, b.high)};
  }
  static Vector max(Vector a, Vector b) { return {vmaxq_f32(a.low, b.low), vmaxq_f32(a.high, b.high)}; }
  static Vector min(Vector a, Vector b) { return {vminq_f32(a.low, b.low), vminq_f32(a.high, b.high)}; }
  static Vector round(Vector a) { return {vrndnq_f32(a.low), vrndnq_f32(a.high)}; }
  /// In two steps, each a normal power of two, so that subnormal and overflowing results round as they
  /// should.
  static Vector scale_by_power(Vector a, Vector n) {
    return {scaled(a.low, vcvtnq_s32_f32(n.low)), scaled(a.high, vcvtnq_s32_f32(n.high))};
  }

  float sum() const { return vaddvq_f32(vaddq_f32(low, high)); }
  float largest() const { return vmaxvq_f32(vmaxq_f32(low, high)); }
  Vector first_or(int64_t count, float other) const {
    constexpr uint32_t places[lanes] = {0, 1, 2, 3, 4, 5, 6, 7};
    const uint32x4_t limit = vdupq_n_u32(static_cast<uint32_t>(count));
    const float32x4_t others = vdupq_n_f32(other);
    return {vbslq_f32(vcltq_u32(vld1q_u32(places), limit), low, others),
            vbslq_f32(vcltq_u32(vld1q_u32(places + 4), limit), high, others)};
  }

  struct DoubleSum {
    float64x2_t parts[4] = {vdupq_n_f64(0), vdupq_n_f64(0), vdupq_n_f64(0), vdupq_n_f64(0)};
    void add(Vector a, Vector b) {
      parts[0] = vfmaq_f64(parts[0], first_doubles(a.low), first_doubles(b.low));
      parts[1] = vfmaq_f64(parts[1], vcvt_high_f64_f32(a.low), vcvt_high_f64_f32(b.low));
      parts[2] = vfmaq_f64(parts[2], first_doubles(a.high), first_doubles(b.high));
      parts[3] = vfmaq_f64(parts[3], vcvt_high_f64_f32(a.high), vcvt_high_f64_f32(b.high));
    }
    double total() const {
      return vaddvq_f64(vaddq_f64(vaddq_f64(parts[0], parts[1]), vaddq_f64(parts[2], parts[3])));
    }
    static float64x2_t first_doubles(float32x4_t v) { return vcvt_f64_f32(vget_low_f32(v)); }
  };

  static void transpose(Vector (&rows)[lanes]) {
    float32x4_t quarters[2][lanes];
    for (int half = 0; half < 2; ++half) {
      transpose_fours(rows[half * 4].low, rows[half * 4 + 1].low, rows[half * 4 + 2].low,
                      rows[half * 4 + 3].low, quarters[half]);
      transpose_fours(rows[half * 4].high, rows[half * 4 + 1].high, rows[half * 4 + 2].high,
                      rows[half * 4 + 3].high, quarters[half] + 4);
    }
    for (int i = 0; i < lanes; ++i) rows[i] = {quarters[0][i], quarters[1][i]};
  }

  static void load_fours(const float* from, Vector (&out)[4]) {
    const float32x4x4_t first = vld4q_f32(from);
    const float32x4x4_t second = vld4q_f32(from + 16);
    for (int i = 0; i < 4; ++i) out[i] = {first.val[i], second.val[i]};
  }

  class Codes {
   public:
    explicit Codes(int bits) {
      uint8_t places[16];
      int16_t shifts[8];
      for (int i = 0; i < 8; ++i) {
        const int bit = i * bits;
        places[i * 2] = static_cast<uint8_t>(bit / 8);
        places[i * 2 + 1] = static_cast<uint8_t>(bit / 8 + 1);
        shifts[i] = static_cast<int16_t>(-(bit % 8));
      }
      places_ = vld1q_u8(places);
      shifts_ = vld1q_s16(shifts);
      mask_ = vdupq_n_u16(static_cast<uint16_t>((1 << bits) - 1));
    }
    Vector load(const std::byte* from, const std::byte* end) const {
      uint8_t word[16] = {};
      std::memcpy(word, from, end - from >= 8 ? 8 : static_cast<size_t>(end - from));
      const uint16x8_t spread = vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(word), places_));
      const uint16x8_t codes = vandq_u16(vshlq_u16(spread, shifts_), mask_);
      return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(codes))), vcvtq_f32_u32(vmovl_high_u16(codes))};
    }

   private:
    uint8x16_t places_;
    int16x8_t shifts_;
    uint16x8_t mask_;
  };

 private:
  template <class Element>
  static size_t bytes_of(int64_t count) {
    return static_cast<size_t>(count < lanes ? count : lanes) * sizeof(Element);
  }
  static uint16x8_t load_u16(const void* from) {
    return vreinterpretq_u16_u8(vld1q_u8(static_cast<const uint8_t*>(from)));
  }
  static float32x4_t scaled(float32x4_t value, int32x4_t n) {
    const int32x4_t half = vshrq_n_s32(n, 1);
    return vmulq_f32(vmulq_f32(value, power(half)), power(vsubq_s32(n, half)));
  }
  static float32x4_t power(int32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
  }
  static void transpose_fours(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d, float32x4_t* out) {
    const float64x2_t ab_even = vreinterpretq_f64_f32(vtrn1q_f32(a, b));
    const float64x2_t ab_odd = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
    const float64x2_t cd_even = vreinterpretq_f64_f32(vtrn1q_f32(c, d));
    const float64x2_t cd_odd = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
    out[0] = vreinterpretq_f32_f64(vzip1q_f64(ab_even, cd_even));
    out[1] = vreinterpretq_f32_f64(vzip1q_f64(ab_odd, cd_odd));
    out[2] = vreinterpretq_f32_f64(vzip2q_f64(ab_even, cd_even));
    out[3] = vreinterpretq_f32_f64(vzip2q_f64(ab_odd, cd_odd));
  }
};

}  // namespace
}  // namespace hexlm::neon
