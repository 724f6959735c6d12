#include <cstring>

#include "kernels/activation_blocks.hpp"
#include "kernels/generic/unroll.hpp"
#include "kernels/x86/intrinsics.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx512 {

namespace {

constexpr int64_t lanes = 16;

float largest_magnitude(__m512i bits) {
  const auto largest = static_cast<uint32_t>(_mm512_reduce_max_epu32(bits));
  float value = 0;
  std::memcpy(&value, &largest, sizeof value);
  return value;
}

/// A block of 16 · Vectors values, `count` of them given, the rest zero.
template <int Vectors>
void quantize_block(const float* x, int64_t count, int8_t* values, float& scale, int32_t& sum) {
  __m512 parts[Vectors];
  __m512i largest = _mm512_setzero_si512();
  unroll<Vectors>([&](auto i) __attribute__((always_inline)) {
    const int64_t left = count - i * lanes;
    const __mmask16 given =
        left >= lanes ? 0xFFFF : static_cast<__mmask16>((1U << (left > 0 ? left : 0)) - 1U);
    parts[i] = _mm512_maskz_loadu_ps(given, x + i * lanes);
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(parts[i]), _mm512_set1_epi32(0x7FFFFFFF));
    largest = _mm512_max_epu32(largest, bits);
  });
  const ActivationScale chosen = activation_scale(largest_magnitude(largest));
  scale = chosen.scale;
  const __mmask16 some = chosen.inverse > 0 ? 0xFFFF : 0;
  __m512i sums = _mm512_setzero_si512();
  unroll<Vectors>([&](auto i) __attribute__((always_inline)) {
    const __m512 scaled = _mm512_mul_ps(parts[i], _mm512_set1_ps(chosen.inverse));
    const __m512i rounded = _mm512_maskz_cvtps_epi32(some, scaled);
    sums = _mm512_add_epi32(sums, rounded);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values + i * lanes), _mm512_cvtepi32_epi8(rounded));
  });
  sum = _mm512_reduce_add_epi32(sums);
}

template <int Vectors>
void quantize_row(const float* x, int64_t columns, const QuantizedRows& out, int64_t row) {
  constexpr int64_t block_columns = Vectors * lanes;
  const int64_t blocks = out.padded_columns / block_columns;
  int8_t* values = out.values + row * out.padded_columns;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = block * block_columns;
    quantize_block<Vectors>(x + begin, columns - begin, values + begin, out.scales[row * blocks + block],
                            out.sums[row * blocks + block]);
  }
}

}  // namespace

void quantize_rows(const float* x, int64_t x_stride, int64_t columns, QuantizedRows& out, int64_t row_begin,
                   int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    if (out.block == 64) {
      quantize_row<4>(x + row * x_stride, columns, out, row);
    } else {
      quantize_row<2>(x + row * x_stride, columns, out, row);
    }
  }
}

}  // namespace hexlm::avx512
