#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "base/half.hpp"
#include "stored_weight.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

/// Round to nearest as spec D.1 states it, in double and element by element; the codes that an exact quotient
/// allows (two when it lies within float rounding of a half).
struct OracleGroup {
  double delta = 0;
  double offset = 0;
  double lowest = 0;
  double highest = 0;
  int zero = 0;
};

OracleGroup oracle_group(const float* w, int64_t count, const Codec& codec) {
  double least = 0;
  double greatest = 0;
  for (int64_t i = 0; i < count; ++i) {
    least = std::min(least, double{w[i]});
    greatest = std::max(greatest, double{w[i]});
  }
  OracleGroup group;
  const auto half = [](double value) { return half_to_float(float_to_half(static_cast<float>(value))); };
  if (codec.symmetric) {
    group.highest = std::ldexp(1, codec.bits - 1) - 1;
    group.lowest = -group.highest;
    group.zero = 1 << (codec.bits - 1);
    group.delta = half(std::max(greatest, -least) / group.highest);
  } else {
    group.highest = std::ldexp(1, codec.bits) - 1;
    group.delta = half((greatest - least) / group.highest);
    group.offset = half(least);
  }
  return group;
}

bool code_matches(double w, int code, const OracleGroup& group) {
  if (group.delta == 0) return code == group.zero;
  const double exact = std::clamp((w - group.offset) / group.delta, group.lowest, group.highest);
  // Half a code, and what float arithmetic may move a tie by.
  return std::fabs(exact - (code - group.zero)) <= 0.5 + 1e-4;
}

void expect_oracle(const std::vector<float>& rows, int64_t columns, const Codec& codec) {
  SCOPED_TRACE(to_string(codec) + " columns " + std::to_string(columns));
  const auto encoded = encode_rtn(rows, columns, codec);
  ASSERT_TRUE(encoded) << encoded.error().message;
  const int64_t count = static_cast<int64_t>(rows.size()) / columns;
  const int64_t groups = codec.groups(columns);
  const int64_t width = codec.group > 0 ? codec.group : columns;
  ASSERT_EQ(static_cast<int64_t>(encoded->scales.size()), count * groups);
  ASSERT_EQ(static_cast<int64_t>(encoded->offsets.size()), codec.symmetric ? 0 : count * groups);
  ASSERT_EQ(static_cast<int64_t>(encoded->data.size()), count * codec.row_bytes(columns));
  const std::vector<float> decoded = decode_rows(view_of(*encoded, count, columns, codec), 0, count);
  std::vector<uint8_t> codes(static_cast<size_t>(columns));
  double error = 0;
  double norm = 0;
  for (int64_t r = 0; r < count; ++r) {
    unpack_codes(encoded->data.data() + r * codec.row_bytes(columns), codec.bits, codes);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = g * width;
      const int64_t end = std::min(columns, begin + width);
      const OracleGroup group = oracle_group(rows.data() + r * columns + begin, end - begin, codec);
      const auto at = static_cast<size_t>(r * groups + g);
      ASSERT_EQ(half_to_float(encoded->scales[at]), group.delta) << "row " << r << " group " << g;
      ASSERT_EQ(codec.symmetric ? 0.0 : half_to_float(encoded->offsets[at]), group.offset);
      for (int64_t c = begin; c < end; ++c) {
        const int code = codes[static_cast<size_t>(c)];
        const double w = rows[static_cast<size_t>(r * columns + c)];
        ASSERT_TRUE(code_matches(w, code, group))
            << "[" << r << ", " << c << "] " << w << " got code " << code;
        const double value = group.delta * (code - group.zero) + group.offset;
        ASSERT_EQ(decoded[static_cast<size_t>(r * columns + c)], static_cast<float>(value));
        error += (w - value) * (w - value);
        norm += w * w;
      }
    }
  }
  EXPECT_NEAR(encoded->squared_error, error, 1e-4 * error + 1e-12);
  EXPECT_NEAR(encoded->squared_norm, norm, 1e-4 * norm);
}

TEST(EncodeRtn, MatchesADoubleOracleForEveryWidthAndGroup) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (const bool symmetric : {true, false}) {
      for (const int64_t group : {0, 16, 32, 64, 128}) {
        expect_oracle(random_weights(5 * 256, static_cast<uint32_t>(bits)), 256,
                      integer_codec(bits, group, symmetric));
      }
    }
  }
}

TEST(EncodeRtn, LastGroupIsShorterWhenTheGroupDoesNotDivideTheColumns) {
  for (const int64_t columns : {1, 15, 17, 63, 65, 100, 112, 321}) {
    for (const bool symmetric : {true, false}) {
      expect_oracle(random_weights(static_cast<size_t>(3 * columns), 11), columns,
                    integer_codec(4, 64, symmetric));
      expect_oracle(random_weights(static_cast<size_t>(3 * columns), 12), columns,
                    integer_codec(5, 16, symmetric));
    }
  }
}

TEST(EncodeRtn, OneSidedGroupsStillContainZero) {
  std::vector<float> rows = random_weights(4 * 64, 5);
  for (float& w : rows) w = std::fabs(w) + 1;
  expect_oracle(rows, 64, integer_codec(4, 32, false));
  for (float& w : rows) w = -w;
  expect_oracle(rows, 64, integer_codec(4, 32, false));
}

TEST(EncodeRtn, ZeroGroupsGetScaleZeroAndTheZeroCode) {
  std::vector<float> row = random_weights(96, 4);
  std::fill(row.begin() + 32, row.begin() + 64, -0.0F);
  for (const bool symmetric : {true, false}) {
    const Codec codec = integer_codec(4, 32, symmetric);
    const auto encoded = encode_rtn(row, 96, codec);
    ASSERT_TRUE(encoded);
    EXPECT_NE(encoded->scales[0], 0);
    EXPECT_EQ(encoded->scales[1], 0);
    for (size_t i = 16; i < 32; ++i) EXPECT_EQ(encoded->data[i], symmetric ? std::byte{0x88} : std::byte{0});
    const std::vector<float> back = decode_rows(view_of(*encoded, 1, 96, codec), 0, 1);
    for (size_t i = 32; i < 64; ++i) EXPECT_EQ(back[i], 0);
    for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(back[i], row[i], 0.02);
  }
}

TEST(EncodeRtn, CodesAreChosenWithTheRoundedScale) {
  // 1/7 rounds to 0.142822265625 in fp16. A weight just below 3.5 exact steps lies above 3.5 stored ones.
  const float stored = half_to_float(float_to_half(1.0F / 7));
  ASSERT_LT(stored, 1.0F / 7);
  const float between = 3.5F * stored * 1.0001F;
  ASSERT_LT(between, 3.5F / 7);
  std::vector<float> row(16, 0);
  row[0] = 1;
  row[1] = between;
  const auto encoded = encode_rtn(row, 16, integer_codec(4, 0, true));
  ASSERT_TRUE(encoded);
  EXPECT_EQ(encoded->data[0], std::byte{(8 + 4) << 4 | (8 + 7)});
}

TEST(EncodeRtn, ErrorIsAtMostHalfAStep) {
  const std::vector<float> rows = random_weights(8 * 128, 21);
  for (const bool symmetric : {true, false}) {
    for (const int bits : {4, 8}) {
      const Codec codec = integer_codec(bits, 64, symmetric);
      const auto encoded = encode_rtn(rows, 128, codec);
      ASSERT_TRUE(encoded);
      const std::vector<float> back = decode_rows(view_of(*encoded, 8, 128, codec), 0, 8);
      for (size_t i = 0; i < rows.size(); ++i) {
        const float delta = half_to_float(encoded->scales[i / 64]);
        // The range's end moves by the scale's own rounding, 2^-11 of it, and by that of the offset.
        const float slack = delta * std::ldexp(1.0F, bits - 11);
        EXPECT_LE(std::fabs(back[i] - rows[i]), delta * 0.5F + slack) << to_string(codec) << " element " << i;
      }
    }
  }
}

TEST(EncodeRtn, EncodingDecodedRowsAgainChangesNothing) {
  const std::vector<float> rows = random_weights(4 * 128, 31);
  const Codec codec = integer_codec(4, 32, true);
  const auto once = encode_rtn(rows, 128, codec);
  ASSERT_TRUE(once);
  const std::vector<float> decoded = decode_rows(view_of(*once, 4, 128, codec), 0, 4);
  const auto twice = encode_rtn(decoded, 128, codec);
  ASSERT_TRUE(twice);
  EXPECT_EQ(decode_rows(view_of(*twice, 4, 128, codec), 0, 4), decoded);
  EXPECT_EQ(twice->squared_error, 0);
}

TEST(EncodeRtn, MoreBitsAndSmallerGroupsGiveLessError) {
  const std::vector<float> rows = random_weights(16 * 512, 41);
  const auto error = [&](const Codec& codec) { return encode_rtn(rows, 512, codec)->squared_error; };
  for (int bits = 3; bits <= 8; ++bits) {
    EXPECT_LT(error(integer_codec(bits, 64, true)), 0.5 * error(integer_codec(bits - 1, 64, true)));
  }
  EXPECT_LT(error(integer_codec(4, 32, true)), error(integer_codec(4, 128, true)));
  EXPECT_LT(error(integer_codec(4, 128, true)), error(integer_codec(4, 0, true)));
}

TEST(EncodeRtn, NamesTheElementThatIsNotFinite) {
  std::vector<float> rows = random_weights(3 * 80, 51);
  rows[2 * 80 + 70] = std::nanf("");
  for (const Codec& codec : {integer_codec(4, 64, true), integer_codec(8, 0, false),
                             Codec{Codec::Kind::f16, 16}, Codec{Codec::Kind::bf16, 16}, Codec{}}) {
    const auto encoded = encode_rtn(rows, 80, codec);
    ASSERT_FALSE(encoded) << to_string(codec);
    EXPECT_EQ(encoded.error().code, ErrorCode::bad_input);
    EXPECT_THAT(encoded.error().message, HasSubstr("[2, 70] is nan, expected a finite"));
  }
  rows[2 * 80 + 70] = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(encode_rtn(rows, 80, integer_codec(4, 64, true)).error().message,
              HasSubstr("[2, 70] is -inf, expected a finite"));
}

TEST(EncodeRtn, RefusesValuesThatTheCodecCannotHold) {
  std::vector<float> rows = random_weights(2 * 64, 61);
  rows[64 + 40] = 8e6F;
  const auto symmetric = encode_rtn(rows, 64, integer_codec(4, 32, true));
  ASSERT_FALSE(symmetric);
  EXPECT_EQ(symmetric.error().code, ErrorCode::bad_input);
  EXPECT_THAT(symmetric.error().message, testing::AllOf(HasSubstr("[1, 40] is 8000000"), HasSubstr("65504")));
  rows[64 + 40] = -70000;  // its scale fits, the offset does not
  EXPECT_FALSE(encode_rtn(rows, 64, integer_codec(4, 32, false)));
  EXPECT_TRUE(encode_rtn(rows, 64, integer_codec(4, 32, true)));
  const auto half = encode_rtn(rows, 64, Codec{Codec::Kind::f16, 16});
  ASSERT_FALSE(half);
  EXPECT_THAT(half.error().message, testing::AllOf(HasSubstr("[1, 40] is -70000"), HasSubstr("65504")));
  EXPECT_THAT(half.error().hint, HasSubstr("bf16"));
  EXPECT_TRUE(encode_rtn(rows, 64, Codec{Codec::Kind::bf16, 16}));
  rows[0] = std::numeric_limits<float>::max();
  EXPECT_FALSE(encode_rtn(rows, 64, integer_codec(8, 0, false)));
  EXPECT_FALSE(encode_rtn(rows, 64, Codec{Codec::Kind::bf16, 16}));  // rounds up to infinity
}

TEST(EncodeRtn, RefusesPartialRows) {
  const std::vector<float> rows(10, 1);
  EXPECT_EQ(encode_rtn(rows, 3, integer_codec(4, 0, true)).error().code, ErrorCode::runtime);
  EXPECT_EQ(encode_rtn(rows, 0, integer_codec(4, 0, true)).error().code, ErrorCode::runtime);
  EXPECT_EQ(encode_rtn(rows, 10, integer_codec(9, 0, true)).error().code, ErrorCode::runtime);
}

}  // namespace
}  // namespace hexlm
