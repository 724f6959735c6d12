#include "quantization/row_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/cpu_features.hpp"
#include "base/half.hpp"

// The loops are written once with the compilers' generic vectors and inlined into one function per
// instruction set. Sixteen lanes everywhere (two registers on AVX2) keep the order of every sum, and so its
// bits, the same; this file is compiled with -ffp-contract=off for the same reason.
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector crosses a function that is not inlined
#define HEXLM_INLINE [[gnu::always_inline]] inline

namespace hexlm {
namespace {

constexpr int64_t lanes = 16;
using Float = float __attribute__((vector_size(lanes * sizeof(float))));
using Int = int32_t __attribute__((vector_size(lanes * sizeof(int32_t))));
using Short = uint16_t __attribute__((vector_size(lanes * sizeof(uint16_t))));
using Byte = uint8_t __attribute__((vector_size(lanes)));

constexpr int32_t magnitude_mask = 0x7fffffff;
constexpr int32_t infinity_bits = 0x7f800000;
/// 1.5 · 2^23: adding it to |x| < 2^22 leaves round-half-even(x) in the low mantissa bits.
constexpr float rounding_shift = 12582912.0F;
constexpr int32_t rounding_shift_bits = 0x4b400000;

template <class Vector, class Element>
HEXLM_INLINE Vector load(const Element* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

template <class To, class From>
HEXLM_INLINE To bits_of(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

/// Maps float bits to integers of the same order (and back: it is its own inverse).
template <class Bits>
HEXLM_INLINE Bits ordered(const Bits& bits) {
  return bits ^ ((bits >> 31) & magnitude_mask);
}

HEXLM_INLINE void widen_bf16(const std::byte* source, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Int wide = __builtin_convertvector(load<Short>(source + 2 * i), Int) << 16;
    std::memcpy(out + i, &wide, sizeof(wide));
  }
  for (; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, source + 2 * i, sizeof(bits));
    out[i] = bfloat16_to_float(bits);
  }
}

HEXLM_INLINE void widen_f16(const std::byte* source, int64_t count, float* out) {
  // Exponents differ by 112; a multiplication moves them and normalises binary16's subnormals as well.
  constexpr float rebias = 0x1p112F;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Int half = __builtin_convertvector(load<Short>(source + 2 * i), Int);
    const Int shifted = (half & 0x7fff) << 13;
    Int wide = bits_of<Int>(bits_of<Float>(shifted) * rebias);
    wide |= ((half & 0x7c00) == 0x7c00) & infinity_bits;
    wide |= (half & 0x8000) << 16;
    std::memcpy(out + i, &wide, sizeof(wide));
  }
  for (; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, source + 2 * i, sizeof(bits));
    out[i] = half_to_float(bits);
  }
}

HEXLM_INLINE void widen_body(const std::byte* source, DType dtype, int64_t count, float* out) {
  if (dtype == DType::bf16) {
    widen_bf16(source, count, out);
  } else if (dtype == DType::f16) {
    widen_f16(source, count, out);
  } else {
    std::memcpy(out, source, static_cast<size_t>(count) * sizeof(float));
  }
}

/// Least and greatest value as ordered integers, starting from zero, and the greatest magnitude's bits.
struct Range {
  int32_t least = 0;
  int32_t greatest = 0;
  int32_t magnitude = 0;
};

HEXLM_INLINE Range find_range(const float* values, int64_t count) {
  Int least{};
  Int greatest{};
  Int magnitude{};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Int bits = load<Int>(values + i);
    const Int key = ordered(bits);
    const Int size = bits & magnitude_mask;
    least = key < least ? key : least;
    greatest = key > greatest ? key : greatest;
    magnitude = size > magnitude ? size : magnitude;
  }
  Range range;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    range.least = std::min(range.least, least[lane]);
    range.greatest = std::max(range.greatest, greatest[lane]);
    range.magnitude = std::max(range.magnitude, magnitude[lane]);
  }
  for (; i < count; ++i) {
    const auto bits = std::bit_cast<int32_t>(values[i]);
    range.least = std::min(range.least, ordered(bits));
    range.greatest = std::max(range.greatest, ordered(bits));
    range.magnitude = std::max(range.magnitude, bits & magnitude_mask);
  }
  return range;
}

HEXLM_INLINE int64_t find_not_finite_body(const float* values, int64_t count) {
  Int magnitude{};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Int size = load<Int>(values + i) & magnitude_mask;
    magnitude = size > magnitude ? size : magnitude;
  }
  bool found = false;
  for (int64_t lane = 0; lane < lanes; ++lane) found |= magnitude[lane] >= infinity_bits;
  for (int64_t k = found ? 0 : i; k < count; ++k) {
    if ((std::bit_cast<int32_t>(values[k]) & magnitude_mask) >= infinity_bits) return k;
  }
  return -1;
}

HEXLM_INLINE double grid_error_body(const float* values, const float* importance, int64_t count,
                                    const Grid& grid) {
  Float error{};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Float w = load<Float>(values + i);
    Float x = (w - grid.offset) / grid.delta;
    x = x < grid.lowest ? grid.lowest - Float{} : x;
    x = x > grid.highest ? grid.highest - Float{} : x;
    const Float q = (x + rounding_shift) - rounding_shift;
    const Float difference = w - (q * grid.delta + grid.offset);
    error += load<Float>(importance + i) * (difference * difference);
  }
  double sum = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) sum += error[lane];
  for (; i < count; ++i) {
    const float x = std::clamp((values[i] - grid.offset) / grid.delta, grid.lowest, grid.highest);
    const float q = (x + rounding_shift) - rounding_shift;
    const float difference = values[i] - (q * grid.delta + grid.offset);
    sum += importance[i] * (difference * difference);
  }
  return sum;
}

HEXLM_INLINE void encode_group(const float* values, int64_t count, const Grid& grid, uint8_t* codes,
                               RowTarget& target) {
  Float error{};
  Float norm{};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Float w = load<Float>(values + i);
    Float x = (w - grid.offset) / grid.delta;
    x = x < grid.lowest ? grid.lowest - Float{} : x;
    x = x > grid.highest ? grid.highest - Float{} : x;
    const Int q = bits_of<Int>(x + rounding_shift) - rounding_shift_bits;
    const Float difference = w - (__builtin_convertvector(q, Float) * grid.delta + grid.offset);
    error += difference * difference;
    norm += w * w;
    const Byte code = __builtin_convertvector(q + grid.zero, Byte);
    std::memcpy(codes + i, &code, sizeof(code));
  }
  double error_sum = 0;
  double norm_sum = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    error_sum += error[lane];
    norm_sum += norm[lane];
  }
  for (; i < count; ++i) {
    const float w = values[i];
    const float x = std::clamp((w - grid.offset) / grid.delta, grid.lowest, grid.highest);
    const int32_t q = std::bit_cast<int32_t>(x + rounding_shift) - rounding_shift_bits;
    const float difference = w - (static_cast<float>(q) * grid.delta + grid.offset);
    error_sum += difference * difference;
    norm_sum += w * w;
    codes[i] = static_cast<uint8_t>(q + grid.zero);
  }
  target.squared_error += error_sum;
  target.squared_norm += norm_sum;
}

/// Δ and offset of a group, rounded to fp16 (spec D.1). False when one of them exceeds fp16's range.
HEXLM_INLINE bool choose_grid(const Range& range, const Codec& codec, Grid& grid, uint16_t& scale,
                              uint16_t& offset) {
  constexpr uint16_t half_infinity = 0x7c00;
  if (codec.symmetric) {
    grid.zero = 1 << (codec.bits - 1);
    grid.highest = static_cast<float>(grid.zero - 1);
    grid.lowest = -grid.highest;
    scale = float_to_half(std::bit_cast<float>(range.magnitude) / grid.highest);
    offset = 0;
  } else {
    const auto least = std::bit_cast<float>(ordered(range.least));
    const auto greatest = std::bit_cast<float>(ordered(range.greatest));
    grid.zero = 0;
    grid.lowest = 0;
    grid.highest = static_cast<float>((1 << codec.bits) - 1);
    // Halves first: the difference of two large floats would overflow.
    scale = float_to_half((greatest / grid.highest) - (least / grid.highest));
    offset = float_to_half(least);
  }
  grid.delta = half_to_float(scale);
  grid.offset = half_to_float(offset);
  return scale < half_infinity && (offset & half_infinity) != half_infinity;
}

HEXLM_INLINE void fill_group(const float* values, int64_t count, const Grid& grid, uint8_t* codes,
                             RowTarget& target) {
  std::memset(codes, grid.zero, static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(values[i]) - grid.offset;
    target.squared_error += difference * difference;
    target.squared_norm += static_cast<double>(values[i]) * values[i];
  }
}

HEXLM_INLINE RowFault encode_row_body(const float* row, int64_t columns, const Codec& codec,
                                      RowTarget& target) {
  const int64_t group = codec.group > 0 ? codec.group : columns;
  int64_t index = 0;
  for (int64_t begin = 0; begin < columns; begin += group, ++index) {
    const int64_t count = std::min(group, columns - begin);
    const Range range = find_range(row + begin, count);
    if (range.magnitude >= infinity_bits) {
      return {RowFault::Kind::not_finite, begin + find_not_finite_body(row + begin, count)};
    }
    Grid grid;
    uint16_t offset = 0;
    if (!choose_grid(range, codec, grid, target.scales[index], offset)) {
      return {RowFault::Kind::scale_overflow, index};
    }
    if (!codec.symmetric) target.offsets[index] = offset;
    // Δ = 0: all weights are zero, or so small that the scale is zero in fp16.
    if (grid.delta == 0) {
      fill_group(row + begin, count, grid, target.codes + begin, target);
    } else {
      encode_group(row + begin, count, grid, target.codes + begin, target);
    }
  }
  return {};
}

// NOLINTBEGIN(bugprone-macro-parentheses): an attribute in parentheses is none.
#define HEXLM_ROW_KERNELS(set, attribute)                                                        \
  attribute void widen_##set(const std::byte* source, DType dtype, int64_t count, float* out) {  \
    widen_body(source, dtype, count, out);                                                       \
  }                                                                                              \
  attribute int64_t find_not_finite_##set(const float* values, int64_t count) {                  \
    return find_not_finite_body(values, count);                                                  \
  }                                                                                              \
  attribute RowFault encode_row_##set(const float* row, int64_t columns, const Codec& codec,     \
                                      RowTarget& target) {                                       \
    return encode_row_body(row, columns, codec, target);                                         \
  }                                                                                              \
  attribute double grid_error_##set(const float* values, const float* importance, int64_t count, \
                                    const Grid& grid) {                                          \
    return grid_error_body(values, importance, count, grid);                                     \
  }                                                                                              \
  constexpr RowKernels kernels_##set{#set, widen_##set, find_not_finite_##set, encode_row_##set, \
                                     grid_error_##set};
// NOLINTEND(bugprone-macro-parentheses)

HEXLM_ROW_KERNELS(portable, )
#if defined(__x86_64__)
HEXLM_ROW_KERNELS(avx2, __attribute__((target("avx2"))))
HEXLM_ROW_KERNELS(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))
#endif

std::vector<RowKernels> detect_row_kernels() {
  std::vector<RowKernels> found{kernels_portable};
#if defined(__x86_64__)
  if (cpu_features().avx2) found.push_back(kernels_avx2);
  if (cpu_features().avx512) found.push_back(kernels_avx512);
#endif
  return found;
}

}  // namespace

std::span<const RowKernels> available_row_kernels() {
  static const std::vector<RowKernels> kernels = detect_row_kernels();
  return kernels;
}

const RowKernels& row_kernels() { return available_row_kernels().back(); }

}  // namespace hexlm
