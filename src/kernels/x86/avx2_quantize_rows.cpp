#include <cstring>

#include "kernels/activation_blocks.hpp"
#include "kernels/generic/quantize_driver.hpp"
#include "kernels/x86/intrinsics.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx2 {

namespace {

__m128i fold(__m256i v) { return _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); }

float largest_magnitude(const float* x, int64_t block) {
  __m256i largest = _mm256_setzero_si256();
  for (int64_t i = 0; i < block; i += 8) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF)));
  }
  __m128i four = fold(largest);
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xB1));
  return _mm_cvtss_f32(_mm_castsi128_ps(four));
}

int32_t sum_of(__m256i v) {
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
  return _mm_cvtsi128_si32(four);
}

void quantize_block(const float* x, int64_t block, int8_t* values, float& scale, int32_t& sum) {
  const ActivationScale chosen = activation_scale(largest_magnitude(x, block));
  scale = chosen.scale;
  sum = 0;
  if (!(chosen.inverse > 0)) {
    std::memset(values, 0, static_cast<size_t>(block));
    return;
  }
  const __m256 inverse = _mm256_set1_ps(chosen.inverse);
  const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // the packs work within 128-bit halves
  __m256i sums = _mm256_setzero_si256();
  for (int64_t i = 0; i < block; i += 32) {
    __m256i parts[4];
    for (int j = 0; j < 4; ++j) {
      parts[j] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + j * 8), inverse));
      sums = _mm256_add_epi32(sums, parts[j]);
    }
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(parts[0], parts[1]), _mm256_packs_epi32(parts[2], parts[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + i),
                        _mm256_permutevar8x32_epi32(packed, in_order));
  }
  sum = sum_of(sums);
}

}  // namespace

void quantize_rows(const float* x, int64_t x_stride, int64_t columns, QuantizedRows& out, int64_t row_begin,
                   int64_t row_end) {
  quantize_blocks(x, x_stride, columns, out, row_begin, row_end, quantize_block);
}

}  // namespace hexlm::avx2
