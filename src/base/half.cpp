#include "base/half.hpp"

namespace hexlm {
namespace {

constexpr uint32_t float_infinity = 0x7f800000U;
constexpr uint32_t float_implicit_bit = 0x00800000U;

/// `value >> shift`, rounded to nearest even. 1 <= shift <= 31.
uint32_t shift_right_rounded(uint32_t value, int shift) {
  const uint32_t half = uint32_t{1} << (shift - 1);
  const uint32_t kept = value >> shift;
  const uint32_t dropped = value & ((half << 1) - 1);
  return kept + static_cast<uint32_t>(dropped > half || (dropped == half && (kept & 1U) != 0));
}

}  // namespace

float half_to_float(uint16_t bits) {
  const uint32_t sign = (uint32_t{bits} & 0x8000U) << 16;
  const uint32_t exponent = (uint32_t{bits} >> 10) & 0x1fU;
  const uint32_t mantissa = uint32_t{bits} & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | float_infinity | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 127 - 15) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // A subnormal is mantissa * 2^-24: shift its leading one up to the implicit bit, 10 places above the last.
  const int shift = std::countl_zero(mantissa) - 21;
  const uint32_t fraction = (mantissa << shift) & 0x3ffU;
  return std::bit_cast<float>(sign | (static_cast<uint32_t>(127 - 14 - shift) << 23) | (fraction << 13));
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > float_infinity) {  // the quiet bit keeps a payload of low bits from becoming infinity
    return static_cast<uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
  }
  // 65520 = 65504 + half a step: the least value that rounds to infinity.
  if (magnitude >= std::bit_cast<uint32_t>(65520.0F)) return static_cast<uint16_t>(sign | 0x7c00U);
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent >= -14) {
    const uint32_t rebased = magnitude - (uint32_t{127 - 15} << 23);
    return static_cast<uint16_t>(sign | shift_right_rounded(rebased, 13));  // a carry moves the exponent on
  }
  if (exponent < -25) return static_cast<uint16_t>(sign);  // below half of the least subnormal, 2^-24
  const uint32_t mantissa = (magnitude & (float_implicit_bit - 1)) | float_implicit_bit;
  return static_cast<uint16_t>(sign | shift_right_rounded(mantissa, -1 - exponent));
}

uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > float_infinity) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace hexlm
