#include <gtest/gtest.h>
#include <random>

#include "tokenizer_support.hpp"

namespace hexlm {
namespace {

/// Ids 0 to 255 are the bytes; 256 is special, 257 added but not special.
Tokenizer byte_tokenizer() {
  nlohmann::json json = byte_tokenizer_json();
  json["added_tokens"] = {{{"id", 256}, {"content", "<end>"}, {"special", true}, {"normalized", false}},
                          {{"id", 257}, {"content", "<think>"}, {"special", false}, {"normalized", false}}};
  return parse_tokenizer(json);
}

std::vector<std::string> push_all(StreamDecoder& stream, const Ids& ids) {
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const int32_t id : ids) pieces.push_back(stream.push(id));
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(StreamDecoder, HoldsACharacterBackUntilItIsComplete) {
  const Tokenizer tokenizer = byte_tokenizer();
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(push_all(stream, {'a', 0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0x98, 0x80, 'b'}),
            (Pieces{"a", "", "", "你", "", "", "", "😀", "b"}));
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, ReplacesInvalidBytesAsSoonAsTheyAreKnown) {
  const Tokenizer tokenizer = byte_tokenizer();
  StreamDecoder stream(tokenizer);
  // A lone continuation, a byte that no character has, an overlong form and a surrogate are known at once or
  // with the next byte; a cut character is known when the next one begins.
  EXPECT_EQ(
      push_all(stream, {0x80, 0xFF, 0xC0, 0xE0, 0x80, 0xED, 0xA0, 0xE4, 0xBD, 'x'}),
      (Pieces{"\uFFFD", "\uFFFD", "\uFFFD", "", "\uFFFD\uFFFD", "", "\uFFFD\uFFFD", "", "", "\uFFFDx"}));
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, FinishGivesWhatWasHeldBackOnce) {
  const Tokenizer tokenizer = byte_tokenizer();
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(push_all(stream, {0xF0, 0x9F, 0x98}), (Pieces{"", "", ""}));
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push('a'), "a");
}

TEST(StreamDecoder, SpecialTokensAreSkippedOrShown) {
  const Tokenizer tokenizer = byte_tokenizer();
  StreamDecoder skipping(tokenizer);
  EXPECT_EQ(push_all(skipping, {257, 0xE4, 256, 0xBD, 0xA0, 999}), (Pieces{"<think>", "", "", "", "你", ""}));
  StreamDecoder showing(tokenizer, false);
  EXPECT_EQ(push_all(showing, {0xE4, 256}), (Pieces{"", "\uFFFD<end>"}));
}

TEST(StreamDecoder, PiecesOfRandomBytesJoinToTheDecodedWhole) {
  const Tokenizer tokenizer = byte_tokenizer();
  std::mt19937 random(11);
  // Bytes that begin or continue characters, valid or not, more often than chance would give them.
  const std::vector<int32_t> likely = {0x80, 0xBF, 0xA0, 0x9F, 0x8F, 0x90, 0xC2, 0xE0, 0xED,
                                       0xE4, 0xF0, 0xF4, 0xF5, 0xC0, 'a',  256,  257};
  for (int round = 0; round < 3000; ++round) {
    Ids ids(random() % 24);
    for (int32_t& id : ids)
      id = random() % 4 == 0 ? static_cast<int32_t>(random() % 256) : likely[random() % 17];
    StreamDecoder stream(tokenizer);
    std::string text;
    for (const int32_t id : ids) {
      text += stream.push(id);
      // What came so far is text of its own: no character is cut.
      ASSERT_TRUE(tokenizer.encode(text)) << ::testing::PrintToString(ids);
    }
    ASSERT_EQ(text + stream.finish(), tokenizer.decode(ids, true)) << ::testing::PrintToString(ids);
  }
}

}  // namespace
}  // namespace hexlm
