#include <gtest/gtest.h>
#include <random>

#include "tokenizer/code_points.hpp"
#include "tokenizer/splitter.hpp"
#include "tokenizer_support.hpp"

namespace hexlm {
namespace {

const std::string qwen3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string qwen35_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

using Pieces = std::vector<std::string>;

Pieces split(const Splitter& splitter, std::string_view text) {
  Pieces pieces;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = splitter.piece_end(text, begin);
    if (end <= begin || end > text.size()) {
      ADD_FAILURE() << "piece from " << begin << " to " << end;
      break;
    }
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

WordSplitter word_splitter(const std::string& pattern) {
  auto splitter = WordSplitter::for_pattern(pattern);
  EXPECT_TRUE(splitter.has_value()) << pattern;
  return splitter ? *splitter : *WordSplitter::for_pattern(qwen3_pattern);
}

Pieces split_by_regex(const std::string& pattern, std::string_view text) {
  const auto splitter = RegexSplitter::compile(pattern);
  EXPECT_TRUE(splitter) << (splitter ? "" : splitter.error().message);
  return splitter ? split(*splitter, text) : Pieces{};
}

TEST(TokenizerSplitter, KnownPatternsByHand) {
  const WordSplitter qwen3 = word_splitter(qwen3_pattern);
  EXPECT_EQ(split(qwen3, "Hello world's 12!\n\n x"),
            (Pieces{"Hello", " world", "'s", " ", "1", "2", "!\n\n", " x"}));
  EXPECT_EQ(split(qwen3, "it'LLook"), (Pieces{"it", "'LL", "ook"}));
  EXPECT_EQ(split(qwen3, "a'\u017Fb"), (Pieces{"a", "'\u017F", "b"})) << "long s is an s to (?i:'s)";
  EXPECT_EQ(split(qwen3, "   x  \n \n  y   "), (Pieces{"  ", " x", "  \n \n", " ", " y", "   "}));
  EXPECT_EQ(split(qwen3, "\tx\u3000\u4F60"), (Pieces{"\tx", "\u3000\u4F60"}));
  EXPECT_EQ(split(qwen3, " ?!a (b)"), (Pieces{" ?!", "a", " (", "b", ")"}));
  EXPECT_EQ(split(word_splitter(llama3_pattern), "12345 6"), (Pieces{"123", "45", " ", "6"}));
  // Only Qwen3.5 lets combining marks join words.
  EXPECT_EQ(split(qwen3, "\u0928\u092E\u0938\u094D\u0924\u0947"),
            (Pieces{"\u0928\u092E\u0938", "\u094D\u0924", "\u0947"}));
  EXPECT_EQ(split(word_splitter(qwen35_pattern), "\u0928\u092E\u0938\u094D\u0924\u0947"),
            (Pieces{"\u0928\u092E\u0938\u094D\u0924\u0947"}));
}

TEST(TokenizerSplitter, OtherPatternsAreNotMistakenForKnownOnes) {
  EXPECT_FALSE(WordSplitter::for_pattern(qwen3_pattern + "|x"));
  EXPECT_FALSE(WordSplitter::for_pattern(R"(\p{L}+)"));
  EXPECT_FALSE(WordSplitter::for_pattern(""));
}

/// A code point that both PCRE2 10.42 (Unicode 14) and our table (16) know, or neither.
uint32_t random_code_point(std::mt19937& random) {
  static const auto unassigned = RegexSplitter::compile(R"(\p{Cn})");
  for (;;) {
    const uint32_t limit = random() % 4 == 0 ? 0x20000 : random() % 3 == 0 ? 0x3100 : 0x250;
    const uint32_t c = random() % limit;
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "x";
    append_code_point(text, c);
    const bool unknown_to_pcre2 = unassigned->piece_end(text, 0) == 1;  // the gap before a match
    if (!unknown_to_pcre2 ||
        (code_points()[c] & (code_point::letter | code_point::number | code_point::mark)) == 0)
      return c;
  }
}

class KnownPattern : public testing::TestWithParam<const std::string*> {};

TEST_P(KnownPattern, AgreesWithPcre2OnRandomText) {
  const std::vector<std::string> likely = {
      " ",      "  ",     "\n",      "\r\n",   "\t",     "\u00A0",     "\u3000", "\u0085", "\u180E",
      "'s",     "'S",     "'re",     "'LL",    "'ve",    "'\u017F",    "'",      "'l",     "a",
      "Word",   "\u00E9", "e\u0301", "\u0301", "\u0903", "\u4E2D",     "\u3002", "1",      "23",
      "\u00BD", "\u0663", "!",       "...",    "_",      "\U0001F600", "\u200D", "\u0378"};
  std::mt19937 random(17);
  const WordSplitter words = word_splitter(*GetParam());
  const auto regex = RegexSplitter::compile(*GetParam());
  ASSERT_TRUE(regex) << regex.error().message;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t i = random() % 16; i > 0; --i) {
      if (random() % 4 == 0) {
        append_code_point(text, random_code_point(random));
      } else {
        text += likely[random() % likely.size()];
      }
    }
    ASSERT_EQ(split(words, text), split(*regex, text)) << testing::PrintToString(text);
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, KnownPattern,
                         testing::Values(&qwen3_pattern, &qwen35_pattern, &llama3_pattern));

TEST(TokenizerRegex, GapsBetweenMatchesArePieces) {
  EXPECT_EQ(split_by_regex("[0-9]+", "ab12c3"), (Pieces{"ab", "12", "c", "3"}));
  EXPECT_EQ(split_by_regex("x", "ab"), Pieces{"ab"});
}

TEST(TokenizerRegex, MeansWhatOnigurumaMeans) {
  EXPECT_EQ(split_by_regex(R"(\s+)", "a\u180Eb\u0085c"), (Pieces{"a\u180Eb", "\u0085", "c"}))
      << "U+180E is no white space, U+0085 is";
  EXPECT_EQ(split_by_regex(R"([\S]+)", "a\u180Eb c"), (Pieces{"a\u180Eb", " ", "c"}));
  EXPECT_EQ(split_by_regex(R"([^\S\n]+)", "a \u180E\n"), (Pieces{"a", " ", "\u180E\n"}));
  EXPECT_EQ(split_by_regex(R"(\p{Han}+)", "a\u4E2D\u3001b"), (Pieces{"a", "\u4E2D", "\u3001b"}))
      << "U+3001 is Han by script extension only";
  EXPECT_EQ(split_by_regex(R"(\P{L}+|\p{^N})", "1a"), (Pieces{"1", "a"}));
  EXPECT_EQ(split_by_regex(R"([\u4e00-\u9fff\x41]+)", "x\u4E2DAy"), (Pieces{"x", "\u4E2DA", "y"}));
  EXPECT_EQ(split_by_regex(R"((?<=a)b++|c{2,}|d?+e)", "abbccde"), (Pieces{"a", "bb", "cc", "de"}));
}

TEST(TokenizerRegex, RefusesWhatItWouldReadOtherwise) {
  for (const char* pattern :
       {R"(\w+)",    R"(\b)",      R"(\h)",         R"(a$)",    R"(^a)",      R"((?i)a)",      R"([a[b]])",
        R"([a&&b])", R"([])",      R"([a)",         R"(a{,3})", R"(a{2}+)",   R"(a{2}?)",      R"(\p{})",
        R"(\pL)",    R"(\p{Foo})", R"(\u12)",       R"(\xE9)",  R"((*FAIL))", R"((?<name>a))", R"(\)",
        R"(a\1)",    R"((a)",      R"(\x{110000})", R"(a*)",    R"()",        R"(a|)",         "a\\p{L"}) {
    const auto splitter = RegexSplitter::compile(pattern);
    ASSERT_FALSE(splitter) << pattern;
    EXPECT_EQ(splitter.error().code, ErrorCode::unsupported) << pattern;
    EXPECT_NE(splitter.error().message.find(pattern), std::string::npos) << splitter.error().message;
  }
}

TEST(TokenizerRegex, GivesUpInsteadOfRunningForever) {
  const auto splitter = RegexSplitter::compile(R"((?:a+)+(?:b|c))");
  ASSERT_TRUE(splitter);
  const std::string text(64, 'a');
  EXPECT_EQ(splitter->piece_end(text, 0), 0U);

  nlohmann::json json = byte_tokenizer_json();
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", "(?:a+)+(?:b|c)"}}}, {"behavior", "Isolated"}},
        json["pre_tokenizer"]}}};
  const auto ids = parse_tokenizer(json).encode(text);
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().code, ErrorCode::limit);
}

TEST(TokenizerRegex, LongTextNeedsNoLargeStack) {
  const auto splitter = RegexSplitter::compile(R"((?:ab|a|b)+c|.)");
  ASSERT_TRUE(splitter);
  const std::string text = std::string(200000, 'a') + "c";
  EXPECT_EQ(splitter->piece_end(text, 0), text.size());
}

TEST(TokenizerRegex, SplitStepsApplyInTurn) {
  nlohmann::json json = byte_tokenizer_json();
  const nlohmann::json byte_level = json["pre_tokenizer"];
  const auto step = [](const nlohmann::json& pattern) {
    return nlohmann::json{
        {"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}, {"invert", false}};
  };
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers", {step({{"String", "a."}}), step({{"Regex", "[0-9]{1,2}"}}), byte_level}}};
  for (const char* pair : {"a .", ". a", "1 2", "2 3", ". 1"}) {
    const std::string merge = pair;
    json["model"]["vocab"][merge.substr(0, 1) + merge.substr(2)] = 256 + json["model"]["merges"].size();
    json["model"]["merges"].push_back(merge);
  }
  // The pieces are "a.", "a", "12", "3", "x.", "12": nothing merges across them.
  EXPECT_EQ(encode(parse_tokenizer(json), "a.a123x.12"), (Ids{256, 'a', 258, '3', 'x', '.', 258}));
}

}  // namespace
}  // namespace hexlm
