#include "base/half.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>

namespace hexlm {
namespace {

/// The value of a finite binary16 by its definition, in double, where it is exact.
double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int mantissa = bits & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

bool is_half_nan(uint16_t bits) { return (bits & 0x7fff) > 0x7c00; }

TEST(Half, WidensEveryPatternExactly) {
  for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    const float value = half_to_float(bits);
    if (is_half_nan(bits)) {
      const uint32_t expected = (pattern & 0x8000U) << 16 | 0x7f800000U | (pattern & 0x3ffU) << 13;
      ASSERT_EQ(std::bit_cast<uint32_t>(value), expected) << pattern;
    } else if ((bits & 0x7fff) == 0x7c00) {
      ASSERT_TRUE(std::isinf(value)) << pattern;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << pattern;
    } else {
      ASSERT_EQ(static_cast<double>(value), half_value(bits)) << pattern;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << pattern;
    }
  }
}

TEST(Half, NarrowingInvertsWidening) {
  for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    const uint16_t back = float_to_half(half_to_float(bits));
    if (is_half_nan(bits)) {
      ASSERT_EQ(back, bits | 0x200) << pattern;  // quiet, payload kept
    } else {
      ASSERT_EQ(back, bits) << pattern;
    }
  }
}

// Between two neighbours the nearer one is chosen, and at the middle the even one: checked at the middle and
// at the floats next to it on both sides, for every pair of neighbours and both signs.
TEST(Half, NarrowingRoundsToNearestEvenAtEveryBoundary) {
  for (uint32_t low = 0; low < 0x7c00; ++low) {
    const double below = half_value(static_cast<uint16_t>(low));
    const double above = low + 1 == 0x7c00 ? 65536.0 : half_value(static_cast<uint16_t>(low + 1));
    const auto middle = static_cast<float>((below + above) / 2);
    ASSERT_EQ(static_cast<double>(middle), (below + above) / 2);
    const auto even = static_cast<uint16_t>(low % 2 == 0 ? low : low + 1);
    for (const uint16_t sign : {uint16_t{0}, uint16_t{0x8000}}) {
      const float factor = sign == 0 ? 1.0F : -1.0F;
      ASSERT_EQ(float_to_half(factor * middle), sign | even) << low;
      ASSERT_EQ(float_to_half(factor * std::nextafter(middle, 0.0F)), sign | low) << low;
      ASSERT_EQ(float_to_half(factor * std::nextafter(middle, 1e9F)), sign | (low + 1)) << low;
    }
  }
}

TEST(Half, NarrowingOfExtremes) {
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_half(-0.0F), 0x8000);
  EXPECT_TRUE(is_half_nan(float_to_half(std::bit_cast<float>(0x7f800001U))));  // payload in the low bits only
}

TEST(Bfloat16, NarrowingInvertsWidening) {
  for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    const float value = bfloat16_to_float(bits);
    ASSERT_EQ(std::bit_cast<uint32_t>(value), pattern << 16);
    ASSERT_EQ(float_to_bfloat16(value), (bits & 0x7fff) > 0x7f80 ? bits | 0x40 : bits) << pattern;
  }
}

TEST(Bfloat16, NarrowingRoundsToNearestEven) {
  for (uint32_t pattern = 0; pattern < 0x7f80; ++pattern) {
    const auto round = [&](uint32_t low) {
      return float_to_bfloat16(std::bit_cast<float>(pattern << 16 | low));
    };
    ASSERT_EQ(round(0x7fff), pattern);
    ASSERT_EQ(round(0x8000), pattern + (pattern & 1));
    ASSERT_EQ(round(0x8001), pattern + 1);
  }
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0xff800001U)))));
}

}  // namespace
}  // namespace hexlm
