#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <utf8proc.h>

#include "tokenizer/code_points.hpp"
#include "tokenizer/nfc.hpp"
#include "tokenizer_support.hpp"

namespace hexlm {
namespace {

std::string nfc(const std::string& text) {
  std::string storage;
  return std::string(compose_nfc(text, storage));
}

/// The whole text through utf8proc, without any quick check.
std::string reference_nfc(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &out,
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
  return size < 0 ? "utf8proc failed"
                  : std::string(reinterpret_cast<const char*>(out), static_cast<size_t>(size));
}

TEST(TokenizerNfc, ComposesByHand) {
  EXPECT_EQ(nfc("Cafe\u0301!"), "Caf\u00E9!");
  EXPECT_EQ(nfc("a\u0307\u0323b"), "\u1EA1\u0307b") << "marks are put in order first";
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "\uAC01") << "Hangul";
  EXPECT_EQ(nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\u212B"), "\u00C5") << "singleton";
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C") << "excluded from composition";
  EXPECT_EQ(nfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(nfc("\u0301x"), "\u0301x") << "a mark with nothing to compose with";
  EXPECT_EQ(nfc(""), "");
}

TEST(TokenizerNfc, TextInFormIsNotCopied) {
  const std::string text =
      "plain ASCII, \u00E9, \u4F60\u597D, \u0E44\u0E17\u0E22, \u05E9\u05B8\u05C1, \U0001F600";
  std::string storage;
  EXPECT_EQ(compose_nfc(text, storage).data(), text.data());
}

TEST(TokenizerNfc, AgreesWithUtf8procOnEveryCodePointInContext) {
  for (uint32_t c = 1; c < 0x110000; ++c) {
    if ((c >= 0xD800 && c < 0xE000) || (c >= 0x40000 && c < 0xE0000)) continue;
    std::string text = "e";
    append_code_point(text, c);
    text += "\u0301 \u0323";
    append_code_point(text, c);
    ASSERT_EQ(nfc(text), reference_nfc(text)) << std::hex << c;
  }
}

TEST(TokenizerNfc, AgreesWithUtf8procOnRandomMarks) {
  const std::vector<uint32_t> pool = {'a',   'e',   ' ',   0x1100, 0x1161, 0x11A8, 0xAC00, 0x300,   0x301,
                                      0x308, 0x323, 0x327, 0x31B,  0x345,  0x3B1,  0x5D0,  0x5B0,   0x5BC,
                                      0x627, 0x654, 0x9C7, 0x9BE,  0xDD9,  0xDCA,  0xDCF,  0x3099,  0x304B,
                                      0xF71, 0xF72, 0x340, 0x344,  0x2126, 0x958,  0x1EA5, 0x1D157, 0x1D165};
  std::mt19937 random(5);
  for (int round = 0; round < 30000; ++round) {
    std::string text;
    for (size_t i = random() % 12; i > 0; --i) append_code_point(text, pool[random() % pool.size()]);
    ASSERT_EQ(nfc(text), reference_nfc(text)) << text;
  }
}

TEST(TokenizerNfc, ALongRunOfMarksTakesNoQuadraticTime) {
  // Half a million marks in the worst order: utf8proc's own ordering would take minutes.
  std::string text = "a";
  for (int i = 0; i < 250000; ++i) text += "\u0301\u0323";
  const std::string composed = nfc(text);
  EXPECT_EQ(composed.substr(0, 7), "\u1EA1\u0323\u0323");
  EXPECT_EQ(composed.size(), text.size());
}

TEST(TokenizerCodePoints, Properties) {
  const CodePointTable& table = code_points();
  EXPECT_EQ(table['a'], code_point::letter | code_point::word);
  EXPECT_EQ(table['7'], code_point::number | code_point::word);
  EXPECT_EQ(table['_'], code_point::word);
  EXPECT_EQ(table['\n'], code_point::white_space | code_point::newline);
  EXPECT_EQ(table[0x85], code_point::white_space);
  EXPECT_EQ(table[0x3000], code_point::white_space);
  EXPECT_EQ(table[0x180E], 0) << "a format character since Unicode 6.3";
  EXPECT_EQ(table[0xFEFF], 0);
  EXPECT_EQ(table[0x0301], code_point::mark | code_point::word | code_point::composes | code_point::reorders);
  EXPECT_EQ(table[0x1161], code_point::letter | code_point::word | code_point::composes);
  EXPECT_EQ(table[0x24B6], code_point::word) << "alphabetic symbol";
  EXPECT_EQ(table[0x200D], code_point::word) << "Join_Control";
  EXPECT_EQ(table[0x2EBF0], code_point::letter | code_point::word) << "new in Unicode 15.1";
  EXPECT_EQ(table[0xE0101], code_point::mark | code_point::word);
  EXPECT_EQ(table[0x10FFFF], 0);
}

}  // namespace
}  // namespace hexlm
