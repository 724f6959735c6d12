#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "base/half.hpp"
#include "quantization/row_kernels.hpp"
#include "stored_weight.hpp"

namespace hexlm {
namespace {

/// The definition, bit by bit: bit b of code i is bit (i·bits + b) of the row, least significant first.
std::vector<std::byte> pack_slowly(const std::vector<uint8_t>& codes, int bits) {
  std::vector<std::byte> out((codes.size() * static_cast<size_t>(bits) + 7) / 8, std::byte{0});
  for (size_t i = 0; i < codes.size(); ++i) {
    for (int b = 0; b < bits; ++b) {
      const size_t position = i * static_cast<size_t>(bits) + static_cast<size_t>(b);
      if ((codes[i] >> b & 1) != 0) out[position / 8] |= std::byte{1} << (position % 8);
    }
  }
  return out;
}

TEST(PackCodes, EveryWidthMatchesTheDefinitionAndUnpacks) {
  std::mt19937 engine(7);
  for (int bits = 2; bits <= 8; ++bits) {
    for (size_t count = 1; count <= 67; ++count) {
      std::vector<uint8_t> codes(count);
      for (uint8_t& code : codes) code = static_cast<uint8_t>(engine() & ((1U << bits) - 1));
      const std::vector<std::byte> expected = pack_slowly(codes, bits);
      ASSERT_EQ(static_cast<int64_t>(expected.size()),
                integer_codec(bits, 0, true).row_bytes(static_cast<int64_t>(count)));
      std::vector<std::byte> packed(expected.size() + 1, std::byte{0xa5});
      pack_codes(codes, bits, packed.data());
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), packed.begin())) << bits << " bits, " << count;
      ASSERT_EQ(packed.back(), std::byte{0xa5}) << "wrote past the row: " << bits << " bits, " << count;
      std::vector<uint8_t> back(count, 255);
      unpack_codes(packed.data(), bits, back);
      ASSERT_EQ(back, codes) << bits << " bits, " << count;
    }
  }
}

TEST(PackCodes, FirstNibbleIsTheLowOne) {
  const std::vector<uint8_t> codes{1, 2, 3};
  std::byte packed[2];
  pack_codes(codes, 4, packed);
  EXPECT_EQ(packed[0], std::byte{0x21});
  EXPECT_EQ(packed[1], std::byte{0x03});
}

TEST(DecodeRows, FollowsTheFormulaOfEachForm) {
  const std::vector<std::byte> codes{std::byte{0x0f}, std::byte{0x08}, std::byte{0x10}, std::byte{0x07}};
  const std::vector<uint16_t> scales{float_to_half(0.5F), float_to_half(2), float_to_half(0.25F), 0};
  const std::vector<uint16_t> offsets{float_to_half(-1), float_to_half(3), float_to_half(0),
                                      float_to_half(5)};
  WeightView weight;
  weight.shape = {2, 3};
  weight.codec = integer_codec(4, 2, true);
  weight.data.bytes = codes;
  weight.scales.bytes = std::as_bytes(std::span(scales));
  EXPECT_EQ(decode_rows(weight, 0, 2), (std::vector<float>{3.5F, -4, 0, -2, -1.75F, 0}));
  weight.codec.symmetric = false;
  weight.offsets.bytes = std::as_bytes(std::span(offsets));
  EXPECT_EQ(decode_rows(weight, 0, 2), (std::vector<float>{6.5F, -1, 19, 0, 0.25F, 5}));
  EXPECT_EQ(decode_rows(weight, 1, 2), (std::vector<float>{0, 0.25F, 5}));
}

TEST(DecodeRows, FloatCodecsWidenExactly) {
  const std::vector<float> values{1, -0.5F, 65504, 0.0009765625F, -0.0F, 3};
  for (const Codec::Kind kind : {Codec::Kind::f32, Codec::Kind::f16, Codec::Kind::bf16}) {
    const Codec codec{kind, kind == Codec::Kind::f32 ? 32 : 16};
    const auto encoded = encode_rtn(values, 3, codec);
    ASSERT_TRUE(encoded) << encoded.error().message;
    const std::vector<float> back = decode_rows(view_of(*encoded, 2, 3, codec), 0, 2);
    for (size_t i = 0; i < values.size(); ++i) {
      const float expected = kind == Codec::Kind::bf16 && values[i] == 65504 ? 65536 : values[i];
      EXPECT_EQ(back[i], expected) << to_string(codec) << " element " << i;
      EXPECT_EQ(std::signbit(back[i]), std::signbit(values[i]));
    }
  }
}

TEST(RowKernels, EverySetWidensEveryHalfPatternExactly) {
  // One byte off, so that loads are unaligned, and 65,536 + 7 so that the tail loop runs.
  constexpr int64_t count = 65536 + 7;
  std::vector<std::byte> stored(2 * count + 1);
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(stored.data() + 1 + 2 * i, &bits, 2);
  }
  std::vector<float> wide(count);
  for (const RowKernels& kernels : available_row_kernels()) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      kernels.widen(stored.data() + 1, dtype, count, wide.data());
      for (int64_t i = 0; i < count; ++i) {
        const auto bits = static_cast<uint16_t>(i);
        const float expected = dtype == DType::f16 ? half_to_float(bits) : bfloat16_to_float(bits);
        const float got = wide[static_cast<size_t>(i)];
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected))
            << kernels.name << " " << to_string(dtype) << " pattern " << i;
      }
    }
  }
}

TEST(RowKernels, EverySetFindsTheFirstValueThatIsNotFinite) {
  for (const RowKernels& kernels : available_row_kernels()) {
    for (int64_t count = 1; count < 70; ++count) {
      std::vector<float> values(static_cast<size_t>(count), std::numeric_limits<float>::max());
      EXPECT_EQ(kernels.find_not_finite(values.data(), count), -1);
      for (int64_t bad = 0; bad < count; ++bad) {
        std::vector<float> spoiled = values;
        spoiled[static_cast<size_t>(bad)] =
            bad % 2 == 0 ? std::nanf("") : -std::numeric_limits<float>::infinity();
        spoiled.back() = count - 1 == bad ? spoiled.back() : std::nanf("");
        ASSERT_EQ(kernels.find_not_finite(spoiled.data(), count), bad) << kernels.name << " of " << count;
      }
    }
  }
}

TEST(RowKernels, EverySetEncodesTheSameBits) {
  constexpr int64_t columns = 211;
  const std::vector<float> row = random_weights(columns, 3);
  const auto sets = available_row_kernels();
  for (const bool symmetric : {true, false}) {
    for (const int64_t group : {0, 16, 24, 64}) {
      const Codec codec = integer_codec(4, group, symmetric);
      std::vector<uint8_t> first_codes;
      std::vector<uint16_t> first_scales;
      double first_error = 0;
      for (const RowKernels& kernels : sets) {
        std::vector<uint8_t> codes(columns);
        std::vector<uint16_t> scales(static_cast<size_t>(2 * codec.groups(columns)));
        RowTarget target{codes.data(), scales.data(), scales.data() + codec.groups(columns)};
        ASSERT_EQ(kernels.encode_row(row.data(), columns, codec, target).kind, RowFault::Kind::none);
        if (&kernels == &sets.front()) {
          first_codes = codes;
          first_scales = scales;
          first_error = target.squared_error;
        }
        EXPECT_EQ(codes, first_codes) << kernels.name << " " << to_string(codec);
        EXPECT_EQ(scales, first_scales) << kernels.name << " " << to_string(codec);
        EXPECT_EQ(target.squared_error, first_error) << kernels.name << " " << to_string(codec);
      }
    }
  }
}

}  // namespace
}  // namespace hexlm
