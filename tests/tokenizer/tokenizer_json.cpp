#include <functional>
#include <gtest/gtest.h>

#include "tokenizer_support.hpp"

namespace hexlm {
namespace {

using nlohmann::json;

Error parse_error(const std::string& text) {
  const auto tokenizer = Tokenizer::parse(text, "tokenizer.json");
  if (tokenizer) {
    ADD_FAILURE() << "accepted";
    return {};
  }
  EXPECT_EQ(tokenizer.error().message.find("tokenizer.json: "), 0U) << tokenizer.error().message;
  EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
  return tokenizer.error();
}

struct Spoiled {
  const char* name;
  std::function<void(json&)> spoil;
  ErrorCode code;
  const char* message;  // a part of it
};

const ErrorCode bad = ErrorCode::bad_input;
const ErrorCode unsupported = ErrorCode::unsupported;

json added(int id, const char* content) { return {{"id", id}, {"content", content}}; }

class TokenizerJson : public testing::TestWithParam<Spoiled> {};

TEST_P(TokenizerJson, IsRefused) {
  json file = byte_tokenizer_json();
  GetParam().spoil(file);
  const Error error = parse_error(file.dump());
  EXPECT_EQ(error.code, GetParam().code) << error.message;
  EXPECT_NE(error.message.find(GetParam().message), std::string::npos) << error.message;
}

INSTANTIATE_TEST_SUITE_P(
    Model, TokenizerJson,
    testing::Values(
        Spoiled{"no model", [](json& j) { j.erase("model"); }, bad, "field model is missing"},
        Spoiled{"no type", [](json& j) { j["model"].erase("type"); }, bad, "model.type is missing"},
        Spoiled{"unigram", [](json& j) { j["model"]["type"] = "Unigram"; }, unsupported,
                "model.type is \"Unigram\", supported is \"BPE\""},
        Spoiled{"no vocab", [](json& j) { j["model"].erase("vocab"); }, bad, "model.vocab is missing"},
        Spoiled{"no merges", [](json& j) { j["model"].erase("merges"); }, bad, "model.merges is missing"},
        Spoiled{"vocab list", [](json& j) { j["model"]["vocab"] = json::array(); }, bad, "field model.vocab"},
        Spoiled{"id string", [](json& j) { j["model"]["vocab"]["x y"] = "1"; }, bad, "field model.vocab"},
        Spoiled{"id twice", [](json& j) { j["model"]["vocab"]["xy"] = 'x'; }, bad,
                "\"xy\" has id 120, which another token has already"},
        Spoiled{"id negative", [](json& j) { j["model"]["vocab"]["xy"] = -1; }, ErrorCode::bad_input,
                "has id -1"},
        Spoiled{"id huge", [](json& j) { j["model"]["vocab"]["xy"] = 1 << 22; }, ErrorCode::bad_input,
                "4194304"},
        Spoiled{"id beyond 32 bits", [](json& j) { j["model"]["vocab"]["xy"] = int64_t{1} << 40; },
                ErrorCode::bad_input, "has id 1099511627776, expected 0 to 4194303"},
        Spoiled{"byte missing", [](json& j) { j["model"]["vocab"].erase(byte_spelling(0xE4)); }, bad,
                "no token for byte 0xE4"},
        Spoiled{"merge of unknown", [](json& j) { j["model"]["merges"] = {"x zz"}; }, bad,
                "\"zz\" in model.merges is not in model.vocab"},
        Spoiled{"merge to unknown", [](json& j) { j["model"]["merges"] = {"x z"}; }, bad, "\"xz\""},
        Spoiled{"merge of one", [](json& j) { j["model"]["merges"] = {"xz"}; }, bad,
                "two tokens and one space"},
        Spoiled{"merge of three", [](json& j) { j["model"]["merges"] = {"x z y"}; }, bad, "one space"},
        Spoiled{"merge list of three", [](json& j) { j["model"]["merges"] = {{"x", "y", "z"}}; }, bad,
                "a merge of 3 tokens"},
        Spoiled{"merge number", [](json& j) { j["model"]["merges"] = {1}; }, bad, "field model.merges"},
        Spoiled{"dropout", [](json& j) { j["model"]["dropout"] = 0.1; }, unsupported, "dropout"},
        Spoiled{"prefix", [](json& j) { j["model"]["continuing_subword_prefix"] = "##"; }, unsupported, "##"},
        Spoiled{"suffix", [](json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, unsupported, "</w>"},
        Spoiled{"ignore_merges", [](json& j) { j["model"]["ignore_merges"] = 1; }, bad, "ignore_merges"}),
    [](const auto& info) { return std::to_string(info.index); });

INSTANTIATE_TEST_SUITE_P(
    Parts, TokenizerJson,
    testing::Values(
        Spoiled{"added id taken", [](json& j) { j["added_tokens"] = json::array({added(7, "<x>")}); }, bad,
                "has id 7"},
        Spoiled{"added elsewhere", [](json& j) { j["added_tokens"] = json::array({added(300, "x")}); }, bad,
                "the vocabulary has it at 120"},
        Spoiled{"added empty", [](json& j) { j["added_tokens"] = json::array({added(300, "")}); }, bad,
                "empty content"},
        Spoiled{"added without id",
                [](json& j) { j["added_tokens"] = json::array({json{{"content", "x"}}}); }, bad,
                "field added_tokens.id"},
        Spoiled{"added flag",
                [](json& j) {
                  j["added_tokens"] = json::array({added(300, "<x>")});
                  j["added_tokens"][0]["lstrip"] = 0;
                },
                bad, "added_tokens.lstrip"},
        Spoiled{"normalizer", [](json& j) { j["normalizer"] = {{"type", "NFKC"}}; }, unsupported,
                "normalizer.type is \"NFKC\""},
        Spoiled{"normalizer text", [](json& j) { j["normalizer"] = "NFC"; }, bad, "field normalizer"},
        Spoiled{"pre-tokenizer", [](json& j) { j["pre_tokenizer"] = {{"type", "Metaspace"}}; }, unsupported,
                "Metaspace"},
        Spoiled{"no pre-tokenizer", [](json& j) { j["pre_tokenizer"] = nullptr; }, unsupported,
                "pre_tokenizer"},
        Spoiled{"prefix space", [](json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, unsupported,
                "add_prefix_space"},
        Spoiled{"split removed",
                [](json& j) {
                  j["pre_tokenizer"] = {
                      {"type", "Split"}, {"pattern", {{"Regex", "x"}}}, {"behavior", "Removed"}};
                },
                unsupported, "behavior is \"Removed\""},
        Spoiled{"regex",
                [](json& j) {
                  j["pre_tokenizer"] = {
                      {"type", "Sequence"},
                      {"pretokenizers",
                       {{{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}},
                        j["pre_tokenizer"]}}};
                },
                unsupported, "uses \"\\w\""},
        Spoiled{"post-processor", [](json& j) { j["post_processor"] = {{"type", "BertProcessing"}}; },
                unsupported, "BertProcessing"},
        Spoiled{"template text",
                [](json& j) {
                  j["post_processor"] = {{"type", "TemplateProcessing"}, {"single", json::array()}};
                },
                unsupported, "holds the text 0 times"},
        Spoiled{"template id",
                [](json& j) {
                  j["post_processor"] = {
                      {"type", "TemplateProcessing"},
                      {"single", {{{"SpecialToken", {{"id", "B"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                      {"special_tokens", {{"B", {{"ids", {999}}}}}}};
                },
                bad, "adds id 999"},
        Spoiled{"decoder", [](json& j) { j["decoder"] = {{"type", "WordPiece"}}; }, unsupported, "WordPiece"},
        Spoiled{"no decoder", [](json& j) { j["decoder"] = nullptr; }, unsupported,
                "decoder is not ByteLevel"}),
    [](const auto& info) { return std::to_string(info.index); });

TEST(TokenizerJsonText, MalformedTextIsRefused) {
  const std::string good = byte_tokenizer_json().dump();
  for (const std::string& text :
       {std::string(), std::string("null"), std::string("[]"), std::string("{"), good + "x", good + "{}",
        good.substr(0, good.size() - 1), "{\"model\": 1}" + good}) {
    EXPECT_EQ(parse_error(text).code, bad) << text.substr(0, 40);
  }
  std::string not_utf8 = good;
  not_utf8[not_utf8.find("ByteLevel")] = '\xFF';
  EXPECT_EQ(parse_error(not_utf8).code, bad);
}

TEST(TokenizerJsonText, MessagesQuoteTokensOnOneLine) {
  json file = byte_tokenizer_json();
  file["model"]["merges"] = json::array({json::array({"a\nb\x7F", "c"})});
  EXPECT_NE(parse_error(file.dump()).message.find("a\\x0ab\\x7f"), std::string::npos);
  file["model"]["merges"] = json::array({json::array({std::string(100000, 'z'), "c"})});
  EXPECT_LT(parse_error(file.dump()).message.size(), 500U);
}

TEST(TokenizerJsonText, AMisspeltNullIsRefused) {
  // Found by fuzzing: simdjson reports it only when asked whether the value is null.
  const std::string text = R"({"model": {"type": "BPE", "dropout": nil, "vocab": {}, "merges": []}})";
  EXPECT_EQ(parse_error(text).code, bad);
}

TEST(TokenizerJsonText, EveryTruncationIsRefused) {
  const std::string good = byte_tokenizer_json().dump();
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_FALSE(Tokenizer::parse(std::string_view(good).substr(0, size), "cut")) << size;
  }
  ASSERT_TRUE(Tokenizer::parse(good, "whole"));
}

TEST(TokenizerJsonText, FieldsMayComeInAnyOrder) {
  json model = byte_tokenizer_json()["model"];
  model["vocab"]["xy"] = 256;
  const std::string text = R"({"model": {"merges": ["x y"], "vocab": )" + model["vocab"].dump() +
                           R"(, "unknown": [1, {"a": 2}], "type": "BPE"}, "decoder": {"type": "ByteLevel"},
                           "truncation": {"max_length": 2}, "padding": {},
                           "pre_tokenizer": {"use_regex": true, "add_prefix_space": false, "type": "ByteLevel"}})";
  const auto tokenizer = Tokenizer::parse(text, "reordered");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(encode(*tokenizer, "xy xy"), (Ids{256, ' ', 256}));
}

TEST(TokenizerJsonText, FieldsGivenTwiceAreRefused) {
  const std::string model = byte_tokenizer_json()["model"].dump();
  EXPECT_NE(parse_error("{\"model\": " + model + ", \"model\": " + model + "}").message.find("twice"),
            std::string::npos);
  const std::string twice = "{\"model\": {\"vocab\": {}, \"vocab\": {}}}";
  EXPECT_NE(parse_error(twice).message.find("model.vocab appears twice"), std::string::npos);
}

TEST(TokenizerJsonText, BytesThatTextNeverHoldsMayLackTokens) {
  json file = byte_tokenizer_json();
  for (const int byte : {0xC0, 0xC1, 0xF5, 0xFF}) file["model"]["vocab"].erase(byte_spelling(byte));
  EXPECT_EQ(encode(parse_tokenizer(file), "\u00E9"), (Ids{0xC3, 0xA9}));
}

TEST(TokenizerJsonText, TokensOutsideTheByteAlphabetStandForThemselves) {
  json file = byte_tokenizer_json();
  file["model"]["vocab"]["a b"] = 256;  // a space is spelled U+0120 in the alphabet
  file["added_tokens"] = {added(300, "\uFF5Cend\u2581\uFF5C"), added(301, "\u00E9t\u00E9")};
  const Tokenizer tokenizer = parse_tokenizer(file);
  EXPECT_EQ(tokenizer.size(), 302);
  EXPECT_EQ(tokenizer.token_bytes(256), "a b");
  EXPECT_EQ(tokenizer.token_id("a b"), 256);
  EXPECT_EQ(encode(tokenizer, "a b"), (Ids{'a', ' ', 'b'}));
  EXPECT_EQ(encode(tokenizer, "x\uFF5Cend\u2581\uFF5C\u00E9t\u00E9"), (Ids{'x', 300, 301}));
  EXPECT_EQ(tokenizer.decode(Ids{300, 301}), "\uFF5Cend\u2581\uFF5C\u00E9t\u00E9");
  EXPECT_EQ(tokenizer.token_bytes(299), "");
  EXPECT_EQ(tokenizer.token_id("\u0120"), ' ');
}

TEST(TokenizerJsonText, AMissingFileIsNamed) {
  const auto tokenizer = Tokenizer::load(test_data("no/such/tokenizer.json"));
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, bad);
  EXPECT_NE(tokenizer.error().message.find("no/such/tokenizer.json"), std::string::npos);
}

}  // namespace
}  // namespace hexlm
