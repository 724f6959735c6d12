#include "formats/two_level.hpp"

#include <array>
#include <gtest/gtest.h>

#include "base/half.hpp"

namespace hexlm {
namespace {

TEST(TwoLevel, ExpandsSignedScalesOfEveryWidth) {
  // Three groups a row: −2^(bits−1), −1 and 2^(bits−1) − 1, packed least significant bit first.
  for (int bits = 4; bits <= 8; ++bits) {
    Codec codec{Codec::Kind::integer, 4, 16, true};
    codec.scale_bits = bits;
    const int zero = 1 << (bits - 1);
    const uint32_t packed =
        0U | static_cast<uint32_t>(zero - 1) << bits | static_cast<uint32_t>(2 * zero - 1) << (2 * bits);
    std::vector<std::byte> group_scales;
    for (int row = 0; row < 2; ++row) {
      for (int64_t i = 0; i < codec.scale_row_bytes(40); ++i) {
        group_scales.push_back(static_cast<std::byte>(packed >> (8 * i) & 255));
      }
    }
    const std::array<uint16_t, 2> rows = {float_to_half(0.25F), float_to_half(0.1F)};
    const std::vector<uint16_t> scales =
        expand_scales(codec, 2, 40, group_scales, std::as_bytes(std::span(rows)));
    ASSERT_EQ(scales.size(), 6U);
    for (size_t row = 0; row < 2; ++row) {
      const float unit = half_to_float(rows[row]);
      EXPECT_EQ(scales[3 * row], float_to_half(unit * static_cast<float>(-zero))) << bits;
      EXPECT_EQ(scales[3 * row + 1], float_to_half(-unit)) << bits;
      EXPECT_EQ(scales[3 * row + 2], float_to_half(unit * static_cast<float>(zero - 1))) << bits;
    }
  }
}

}  // namespace
}  // namespace hexlm
