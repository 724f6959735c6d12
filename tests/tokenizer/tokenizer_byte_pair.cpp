#include <gtest/gtest.h>
#include <map>
#include <random>

#include "tokenizer/byte_pair.hpp"
#include "tokenizer_support.hpp"

namespace hexlm {
namespace {

using Pair = std::pair<std::string, std::string>;

struct Model {
  std::map<std::string, int32_t> vocab;
  std::map<Pair, size_t> ranks;
};

/// A random model over the bytes a to d: merges join tokens made before, some tokens have several merges,
/// some merges come twice, and some are ranked before the merges that make their parts.
Model random_model(std::mt19937& random, nlohmann::json& json) {
  Model model;
  json = byte_tokenizer_json();
  std::vector<std::string> tokens = {"a", "b", "c", "d"};
  for (const std::string& token : tokens) model.vocab[token] = token[0];
  std::vector<Pair> merges;
  for (int i = 0; i < 40; ++i) {
    const Pair pair{tokens[random() % tokens.size()], tokens[random() % tokens.size()]};
    const std::string token = pair.first + pair.second;
    if (token.size() > 12) continue;
    merges.insert(merges.begin() + static_cast<ptrdiff_t>(random() % (merges.size() + 1)), pair);
    const auto [at, is_new] = model.vocab.try_emplace(token, 256 + static_cast<int32_t>(tokens.size()) - 4);
    if (is_new) tokens.push_back(token);
    json["model"]["vocab"][token] = at->second;
  }
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    model.ranks[merges[rank]] = rank;
    json["model"]["merges"].push_back({merges[rank].first, merges[rank].second});
  }
  return model;
}

/// The definition of byte-pair encoding, on strings.
Ids reference_encode(const Model& model, const std::string& word) {
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  for (;;) {
    size_t best = SIZE_MAX;
    size_t best_rank = SIZE_MAX;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rank = model.ranks.find({symbols[i], symbols[i + 1]});
      if (rank == model.ranks.end() || rank->second >= best_rank) continue;
      best = i;
      best_rank = rank->second;
    }
    if (best == SIZE_MAX) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) ids.push_back(model.vocab.at(symbol));
  return ids;
}

TEST(TokenizerBytePair, AgreesWithTheDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    nlohmann::json json;
    const Model model = random_model(random, json);
    const Tokenizer tokenizer = parse_tokenizer(json);
    // Lengths on both sides of what is cached (30 bytes) and of what is scanned instead of queued (48).
    for (const size_t length : {1U, 2U, 3U, 8U, 29U, 30U, 31U, 47U, 48U, 49U, 400U}) {
      std::string word;
      for (size_t i = 0; i < length; ++i) word += static_cast<char>('a' + random() % 4);
      const Ids expected = reference_encode(model, word);
      ASSERT_EQ(encode(tokenizer, word), expected) << word;
      ASSERT_EQ(encode(tokenizer, word), expected) << "again, now from the cache: " << word;
    }
  }
}

TEST(TokenizerBytePair, LeftmostOfEqualPairsMergesFirst) {
  nlohmann::json json = byte_tokenizer_json();
  json["model"]["vocab"]["aa"] = 256;
  json["model"]["merges"] = {"a a"};
  const Tokenizer tokenizer = parse_tokenizer(json);
  EXPECT_EQ(encode(tokenizer, "aaa"), (Ids{256, 'a'}));
  const Ids ids = encode(tokenizer, std::string(100001, 'a'));
  EXPECT_EQ(ids.size(), 50001U);
  EXPECT_EQ(ids.back(), 'a');
}

TEST(TokenizerBytePair, IgnoreMergesTakesWholeWords) {
  nlohmann::json json = byte_tokenizer_json();
  json["model"]["vocab"]["xyz"] = 256;
  json["model"]["vocab"]["xy"] = 257;
  json["model"]["merges"] = {"x y"};
  EXPECT_EQ(encode(parse_tokenizer(json), "xyz"), (Ids{257, 'z'}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode(parse_tokenizer(json), "xyz"), Ids{256});
  EXPECT_EQ(encode(parse_tokenizer(json), "xyzz"), (Ids{257, 'z', 'z'}));
}

TEST(TokenizerBytePair, MergeTableKeepsTheLastRankOfAPair) {
  MergeTable table;
  for (int32_t i = 0; i < 1000; ++i) ASSERT_TRUE(table.add(i, 2 * i, i + 5000));
  ASSERT_TRUE(table.add(7, 14, 9));
  EXPECT_EQ(table.rank(7, 14), 1000U);
  EXPECT_EQ(table.merged(1000), 9);
  EXPECT_EQ(table.rank(8, 16), 8U);
  EXPECT_EQ(table.rank(14, 7), MergeTable::no_rank);
  const int32_t top = Vocabulary::max_size - 1;
  ASSERT_TRUE(table.add(top, top, 1));
  EXPECT_EQ(table.rank(top, top), 1001U);
}

TEST(TokenizerBytePair, MoreMergesThanRanksAreRefused) {
  MergeTable table;
  for (uint32_t i = 0; i < MergeTable::max_merges; ++i) {
    ASSERT_TRUE(table.add(static_cast<int32_t>(i), 0, 0));
  }
  const Status status = table.add(0, 1, 0);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::limit);
}

}  // namespace
}  // namespace hexlm
