#include "base/text.hpp"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

namespace hexlm {
namespace {

TEST(Text, FormatsBytesWithThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(812), "812 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(9994), "9.99 kB");
  EXPECT_EQ(format_bytes(9996), "10.0 kB");
  EXPECT_EQ(format_bytes(12'345'678), "12.3 MB");
  EXPECT_EQ(format_bytes(99'960'000), "100 MB");
  EXPECT_EQ(format_bytes(999'499), "999 kB");
  EXPECT_EQ(format_bytes(999'501), "1.00 MB");
  EXPECT_EQ(format_bytes(1'500'000'000), "1.50 GB");
  EXPECT_EQ(format_bytes(std::numeric_limits<uint64_t>::max()), "18.4 EB");
}

TEST(Text, FormatsShapes) {
  EXPECT_EQ(format_shape(std::vector<int64_t>{32, 128}), "[32, 128]");
  EXPECT_EQ(format_shape(std::vector<int64_t>{}), "[]");
}

TEST(Text, NearestHasTheLeastEditDistance) {
  const std::vector<std::string> names = {"threads", "precision", "memory"};
  EXPECT_EQ(nearest("thread", names), "threads");
  EXPECT_EQ(nearest("persision", names), "precision");
  EXPECT_EQ(nearest("memroy", names), "memory");
  EXPECT_EQ(nearest("x", std::vector<std::string>{"", "abc"}), "");
  EXPECT_EQ(nearest("x", std::vector<std::string>{}), "");
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,,b,", ','), (std::vector<std::string_view>{"a", "", "b", ""}));
  EXPECT_EQ(split("", ','), (std::vector<std::string_view>{""}));
}

TEST(Text, ParseIntegerIsStrict) {
  int64_t value = 7;
  EXPECT_TRUE(parse_integer("-12", value));
  EXPECT_EQ(value, -12);
  EXPECT_TRUE(parse_integer("9223372036854775807", value));
  EXPECT_EQ(value, std::numeric_limits<int64_t>::max());
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1.0", "0x1", "9223372036854775808", "1e3"}) {
    value = 7;
    EXPECT_FALSE(parse_integer(text, value)) << text;
    EXPECT_EQ(value, 7) << text;
  }
}

TEST(Text, Utf8) {
  for (const char* text : {"", "abc", "\xc3\xa9", "\xe5\xb1\x82", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf",
                           "\xed\x9f\xbf", "\xee\x80\x80", "\xe0\xa0\x80", "\xf0\x90\x80\x80"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << text;
  }
  for (const char* text : {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                           "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
                           "\xe5\xb1", "\xe5\xb1z", "\xf0\x9f\x98", "a\xff", "\xc3\xa9\xa9"}) {
    EXPECT_FALSE(is_valid_utf8(text)) << text;
  }
  EXPECT_TRUE(is_valid_utf8(std::string_view("a\0b", 3)));
}

// Every code point from 0 to 0x10FFFF, encoded by the definition: valid unless it is a surrogate.
TEST(Text, Utf8OfEveryCodePoint) {
  for (uint32_t code = 0; code <= 0x10ffff; ++code) {
    std::string text;
    const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
    if (code < 0x80) {
      add(code);
    } else if (code < 0x800) {
      add(0xc0 | code >> 6);
      add(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      add(0xe0 | code >> 12);
      add(0x80 | (code >> 6 & 0x3f));
      add(0x80 | (code & 0x3f));
    } else {
      add(0xf0 | code >> 18);
      add(0x80 | (code >> 12 & 0x3f));
      add(0x80 | (code >> 6 & 0x3f));
      add(0x80 | (code & 0x3f));
    }
    ASSERT_EQ(is_valid_utf8(text), code < 0xd800 || code > 0xdfff) << code;
  }
}

}  // namespace
}  // namespace hexlm
