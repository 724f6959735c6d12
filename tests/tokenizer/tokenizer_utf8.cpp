#include <gtest/gtest.h>

#include "tokenizer/utf8.hpp"
#include "tokenizer_support.hpp"

namespace hexlm {
namespace {

std::string lossy(std::string_view bytes) {
  std::string text;
  append_lossy_utf8(bytes, text);
  return text;
}

TEST(TokenizerUtf8, ReadsEveryCodePoint) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_code_point(text, c);
    const Character character = read_character(text.data());
    ASSERT_EQ(static_cast<uint32_t>(character.code_point), c);
    ASSERT_EQ(character.length, text.size());
    ASSERT_EQ(find_invalid_utf8(text), std::nullopt);
    ASSERT_EQ(last_character("x" + text), 1U);
    for (size_t cut = 0; cut < text.size(); ++cut) {
      ASSERT_EQ(complete_utf8_prefix("ab" + text.substr(0, cut)), 2U);
    }
    ASSERT_EQ(complete_utf8_prefix(text), text.size());
  }
}

TEST(TokenizerUtf8, FindsTheFirstIllFormedByte) {
  EXPECT_EQ(find_invalid_utf8("\x80"), 0U);
  EXPECT_EQ(find_invalid_utf8("a\xC1\x81"), 1U);         // overlong
  EXPECT_EQ(find_invalid_utf8("é\xE0\x9F\xBF"), 2U);     // overlong
  EXPECT_EQ(find_invalid_utf8("ab\xED\xA0\x80"), 2U);    // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0U);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("ok\xF0\x9F\x98"), 2U);    // cut off
}

TEST(TokenizerUtf8, ReplacesMaximalSubparts) {
  // The examples of Unicode 15, section 3.9, tables 3-8 to 3-11.
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42");
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(lossy("a\xE4\xBD"), "a\uFFFD");
}

TEST(TokenizerUtf8, KeepsOnlyWhatCanStillBecomeACharacter) {
  EXPECT_EQ(complete_utf8_prefix(""), 0U);
  EXPECT_EQ(complete_utf8_prefix("a\xE0\x80"), 3U) << "E0 80 begins no character";
  EXPECT_EQ(complete_utf8_prefix("a\xE0\xA0"), 1U);
  EXPECT_EQ(complete_utf8_prefix("\xF4\x90"), 2U) << "beyond U+10FFFF";
  EXPECT_EQ(complete_utf8_prefix("\x80\x80\x80"), 3U);
  EXPECT_EQ(complete_utf8_prefix("\xE4\xF0\x9F"), 1U) << "E4 is not followed by a continuation";
}

}  // namespace
}  // namespace hexlm
