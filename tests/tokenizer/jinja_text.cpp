#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>

#include "tokenizer/jinja/literal.hpp"
#include "tokenizer/jinja/represent.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

TEST(JinjaText, SearcherAgreesWithTheStandardLibrary) {
  std::mt19937 random(7);
  size_t found = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (size_t i = random() % 300; i > 0; --i) text += random() % 8 == 0 ? 'b' : 'a';
    std::string needle;
    // Needles above 32 bytes take another way than shorter ones.
    const size_t length = 1 + random() % 60;
    if (round % 2 == 0 && text.size() > length) {
      needle = text.substr(random() % (text.size() - length), length);
    } else {
      for (size_t i = 0; i < length; ++i) needle += random() % 20 == 0 ? 'b' : 'a';
    }
    const Searcher searcher(needle);
    const size_t from = random() % (text.size() + 1);
    EXPECT_EQ(searcher.find(text, from), text.find(needle, from));
    EXPECT_EQ(searcher.find_last(text), text.rfind(needle));
    size_t count = 0;
    for (size_t at = text.find(needle); at != std::string::npos; at = text.find(needle, at + needle.size()))
      ++count;
    EXPECT_EQ(searcher.count(text), count);
    found += count;
  }
  EXPECT_GT(found, 1000u);
}

TEST(JinjaText, RealsAreWrittenLikePythons) {
  EXPECT_EQ(represent_real(0.0), "0.0");
  EXPECT_EQ(represent_real(-0.0), "-0.0");
  EXPECT_EQ(represent_real(0.1), "0.1");
  EXPECT_EQ(represent_real(100.0), "100.0");
  EXPECT_EQ(represent_real(1234.5), "1234.5");
  EXPECT_EQ(represent_real(0.0001), "0.0001");
  EXPECT_EQ(represent_real(0.00012345), "0.00012345");
  EXPECT_EQ(represent_real(0.00001), "1e-05");
  EXPECT_EQ(represent_real(-1.5e-7), "-1.5e-07");
  EXPECT_EQ(represent_real(1e15), "1000000000000000.0");
  EXPECT_EQ(represent_real(9999999999999998.0), "9999999999999998.0");
  EXPECT_EQ(represent_real(1e16), "1e+16");
  EXPECT_EQ(represent_real(1.7976931348623157e308), "1.7976931348623157e+308");
  EXPECT_EQ(represent_real(5e-324), "5e-324");
  EXPECT_EQ(represent_real(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(represent_real(std::nan("")), "nan");
}

TEST(JinjaText, NumbersParseLikePythons) {
  int64_t integer = 0;
  EXPECT_TRUE(parse_python_integer(" -1_000\n", 10, integer));
  EXPECT_EQ(integer, -1000);
  EXPECT_TRUE(parse_python_integer("0x_1f", 16, integer));
  EXPECT_EQ(integer, 31);
  EXPECT_TRUE(parse_python_integer("0b11", 0, integer));
  EXPECT_EQ(integer, 3);
  EXPECT_TRUE(parse_python_integer("-9223372036854775808", 10, integer));
  EXPECT_EQ(integer, std::numeric_limits<int64_t>::min());
  for (const char* wrong : {"", "-", "1__0", "_1", "1_", "9223372036854775808", "1.0", "+-1", "0x1", "1 0"}) {
    EXPECT_FALSE(parse_python_integer(wrong, 10, integer)) << wrong;
  }
  EXPECT_FALSE(parse_python_integer("010", 0, integer));
  double real = 0;
  EXPECT_TRUE(parse_python_real(" +1_0.5e-1 ", real));
  EXPECT_EQ(real, 1.05);
  EXPECT_TRUE(parse_python_real("1e400", real));
  EXPECT_TRUE(std::isinf(real));
  EXPECT_TRUE(parse_python_real("1e-400", real));
  EXPECT_EQ(real, 0);
  for (const char* wrong : {"", ".", "e5", "1e", "1..2", "1.5.", "0x1p3", "1 2", "--1", "in"}) {
    EXPECT_FALSE(parse_python_real(wrong, real)) << wrong;
  }
}

TEST(JinjaText, CodePointsRoundTrip) {
  for (char32_t c = 1; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_code_point(text, c);
    size_t position = 0;
    ASSERT_EQ(next_code_point(text, position), c);
    ASSERT_EQ(position, text.size());
    ASSERT_EQ(count_code_points(text), 1u);
  }
  EXPECT_EQ(byte_offset("aé😀b", 3), 7u);
  EXPECT_EQ(byte_offset("aé", 9), 3u);
}

}  // namespace
}  // namespace hexlm::jinja
