#include "formats/json.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "support/temporary_folder.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

TEST(Json, ParsesInOrder) {
  const auto json =
      parse_json(R"({"z": [1, -2, 3.5, true, null, "é\n"], "a": {"b": 18446744073709551615}})", "x.json");
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(json->dump(), R"({"z":[1,-2,3.5,true,null,"é\n"],"a":{"b":18446744073709551615}})");
  EXPECT_TRUE(json->at("z")[0].is_number_unsigned());
  EXPECT_TRUE(json->at("z")[1].is_number_integer());
}

TEST(Json, ParsesScalarsAndEmptyContainers) {
  for (const char* text : {"1", "\"x\"", "null", "[]", "{}", " [ ] ", "[[],{}]"}) {
    EXPECT_TRUE(parse_json(text, "x.json")) << text;
  }
}

TEST(Json, NamesOriginAndOffset) {
  for (const char* text :
       {"", "{", "[1,]", "{\"a\" 1}", "[1] x", "\"\xff\"", "nul", "[1e999]", "{1:2}", "[\"\\ud800\"]"}) {
    const auto json = parse_json(text, "dir/x.json");
    ASSERT_FALSE(json) << text;
    EXPECT_EQ(json.error().code, ErrorCode::bad_input);
    EXPECT_THAT(json.error().message, HasSubstr("dir/x.json"));
    EXPECT_THAT(json.error().message, HasSubstr("at byte "));
    EXPECT_EQ(json.error().message.find('\n'), std::string::npos);
  }
  EXPECT_THAT(parse_json("[1,]", "x").error().message, HasSubstr("at byte 4"));
}

TEST(Json, RejectsDuplicateKeys) {
  const auto json = parse_json(R"({"a":1,"b":{"c":1,"d":2,"c":3}})", "x.json");
  ASSERT_FALSE(json);
  EXPECT_THAT(json.error().message, HasSubstr("'c' appears twice"));
  EXPECT_TRUE(parse_json(R"({"a":{"c":1},"b":{"c":1}})", "x.json"));
}

TEST(Json, LimitsNesting) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(256), "x.json"));
  const auto json = parse_json(nested(257), "x.json");
  ASSERT_FALSE(json);
  EXPECT_THAT(json.error().message, HasSubstr("256"));
  EXPECT_THAT(json.error().message, HasSubstr("byte 256"));
  EXPECT_FALSE(parse_json(std::string(1'000'000, '['), "x.json"));
  EXPECT_TRUE(parse_json(fmt::format(R"("{0}\"{0}")", std::string(300, '[')), "x.json"));
}

TEST(Json, ReadsFiles) {
  const TemporaryFolder folder;
  write_test_file(folder.file("a.json"), "{\"a\": 1}");
  const auto json = read_json(folder.file("a.json"));
  ASSERT_TRUE(json);
  EXPECT_EQ(json->at("a"), 1);
  EXPECT_EQ(read_json(folder.file("a.json"), 3).error().code, ErrorCode::limit);
  EXPECT_EQ(read_json(folder.file("b.json")).error().code, ErrorCode::bad_input);
}

// Quadratic member look-up would take minutes here.
TEST(Json, WideObjectsParseInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("{}\"key{}\":{}", i == 0 ? "" : ",", i, i);
  const auto json = parse_json(text + "}", "x.json");
  ASSERT_TRUE(json);
  EXPECT_EQ(json->size(), 200'000U);
}

}  // namespace
}  // namespace hexlm
