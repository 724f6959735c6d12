#include <arm_neon.h>
#include <cstring>

#include "kernels/activation_blocks.hpp"
#include "kernels/arm/arm_kernels.hpp"
#include "kernels/generic/quantize_driver.hpp"

namespace hexlm::neon {

namespace {

float largest_magnitude(const float* x, int64_t count) {
  uint32x4_t largest = vdupq_n_u32(0);
  const uint32x4_t no_sign = vdupq_n_u32(0x7FFFFFFF);
  for (int64_t i = 0; i < count; i += 4) {
    largest = vmaxq_u32(largest, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), no_sign));
  }
  const uint32_t bits = vmaxvq_u32(largest);
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// `count` is 32 or 64. NaN and infinite blocks have the factor 0 and convert to 0.
void quantize_block(const float* x, int64_t count, int8_t* values, float& scale, int32_t& sum) {
  const ActivationScale chosen = activation_scale(largest_magnitude(x, count));
  scale = chosen.scale;
  int32x4_t sums = vdupq_n_s32(0);
  for (int64_t i = 0; i < count; i += 16) {
    int16x4_t shorts[4];
    for (int part = 0; part < 4; ++part) {
      const float32x4_t scaled = vmulq_n_f32(vld1q_f32(x + i + part * 4), chosen.inverse);
      shorts[part] = vmovn_s32(vcvtnq_s32_f32(scaled));
    }
    const int16x8_t first = vcombine_s16(shorts[0], shorts[1]);
    const int16x8_t second = vcombine_s16(shorts[2], shorts[3]);
    sums = vpadalq_s16(vpadalq_s16(sums, first), second);
    vst1q_s8(values + i, vcombine_s8(vmovn_s16(first), vmovn_s16(second)));
  }
  sum = vaddvq_s32(sums);
}

}  // namespace

void quantize_rows(const float* x, int64_t x_stride, int64_t columns, QuantizedRows& out, int64_t row_begin,
                   int64_t row_end) {
  quantize_blocks(x, x_stride, columns, out, row_begin, row_end, quantize_block);
}

}  // namespace hexlm::neon
