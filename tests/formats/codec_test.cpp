#include "formats/codec.hpp"

#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace hexlm {
namespace {

TEST(Codec, SpellingsRoundTrip) {
  for (const char* text : {"f32", "f16", "bf16", "w8", "w4", "w4g64", "w8g128a", "w2g16", "w3a", "w5g4096a",
                           "w6g17", "w4g32s6", "w4g32a:f32", "w3g16s4", "w8g4096s8"}) {
    const auto codec = parse_codec(text);
    ASSERT_TRUE(codec) << text;
    EXPECT_EQ(to_string(*codec), text);
  }
  const auto codec = parse_codec("w4g64a");
  EXPECT_EQ(*codec, (Codec{Codec::Kind::integer, 4, 64, false}));
  EXPECT_FALSE(codec->is_float());
  EXPECT_TRUE(parse_codec("bf16")->is_float());
  EXPECT_EQ(parse_codec("bf16")->bits, 16);
}

TEST(Codec, RefusesOtherSpellings) {
  for (const char* text :
       {"",         "w",           "w1",       "w9",      "w04",     "w4g",
        "w4g0",     "w4g15",       "w4g4097",  "w4g064",  "w4ga",    "w4aa",
        "w4ag64",   "W4",          "f64",      "w4g-64",  "w4g64 ",  "w4g99999999999999999999",
        "q4",       "w4s6",        "w4g32as6", "w4g32s3", "w4g32s9", "w4g32s",
        "w4g32s6a", "w4g32s6:f32", "w4g32s06"}) {
    const auto codec = parse_codec(text);
    ASSERT_FALSE(codec) << text;
    EXPECT_EQ(codec.error().code, ErrorCode::usage);
    EXPECT_THAT(codec.error().message, testing::HasSubstr(std::string("'") + text + "'"));
    EXPECT_THAT(codec.error().hint, testing::HasSubstr("w4g64"));
  }
}

TEST(Codec, GroupsAndRowBytes) {
  const auto groups = [](const char* text, int64_t columns) { return parse_codec(text)->groups(columns); };
  const auto bytes = [](const char* text, int64_t columns) { return parse_codec(text)->row_bytes(columns); };
  EXPECT_EQ(groups("f16", 100), 0);
  EXPECT_EQ(groups("w4", 100), 1);
  EXPECT_EQ(groups("w4g64", 128), 2);
  EXPECT_EQ(groups("w4g64", 129), 3);
  EXPECT_EQ(groups("w4g64", 1), 1);
  EXPECT_EQ(bytes("f32", 3), 12);
  EXPECT_EQ(bytes("bf16", 3), 6);
  EXPECT_EQ(bytes("w8", 3), 3);
  EXPECT_EQ(bytes("w4", 3), 2);
  EXPECT_EQ(bytes("w3", 8), 3);
  EXPECT_EQ(bytes("w3", 9), 4);
  EXPECT_EQ(bytes("w5g64", 4304), 2690);
  for (int64_t columns = 0; columns < 200; ++columns) {
    for (int bits = 2; bits <= 8; ++bits) {
      const Codec codec{Codec::Kind::integer, bits, 0, true};
      EXPECT_EQ(codec.row_bytes(columns), (columns * bits + 7) / 8);
    }
  }
}

TEST(Codec, ViewDimensions) {
  WeightView weight;
  EXPECT_EQ(weight.rows(), 1);
  EXPECT_EQ(weight.columns(), 1);
  weight.shape = {5};
  EXPECT_EQ(weight.rows(), 5);
  EXPECT_EQ(weight.columns(), 1);
  weight.shape = {5, 3, 2};
  EXPECT_EQ(weight.columns(), 6);
}

}  // namespace
}  // namespace hexlm
