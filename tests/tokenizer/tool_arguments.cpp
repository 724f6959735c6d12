#include "tokenizer/tool_arguments.hpp"

#include <gtest/gtest.h>

namespace hexlm {
namespace {

using Json = nlohmann::ordered_json;

Json call_with(const Json& arguments) {
  return {{"messages",
           {{{"role", "user"}, {"content", "{\"a\":1}"}},
            {{"role", "assistant"},
             {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", arguments}}}}}}}}}};
}

TEST(ToolArguments, TextThatIsAnObjectBecomesOne) {
  EXPECT_EQ(with_parsed_tool_arguments(call_with("{\"b\":[1,null],\"a\":\"x\"}")),
            call_with({{"b", {1, nullptr}}, {"a", "x"}}));
  EXPECT_EQ(with_parsed_tool_arguments(call_with("")), call_with(Json::object()));
  const Json flat = {{"messages", {{{"tool_calls", {{{"arguments", "{\"a\":1}"}}}}}}}};
  EXPECT_EQ(with_parsed_tool_arguments(flat)["messages"][0]["tool_calls"][0]["arguments"], Json({{"a", 1}}));
}

TEST(ToolArguments, EverythingElseStays) {
  for (const Json& arguments :
       {Json("[1]"), Json("5"), Json("{\"a\":"), Json("{} x"), Json({{"a", 1}}), Json()}) {
    EXPECT_EQ(with_parsed_tool_arguments(call_with(arguments)), call_with(arguments));
  }
  for (const Json& context : {Json(), Json(5), Json::object(), Json({{"messages", 5}}),
                              Json({{"messages", {5, {{"tool_calls", "x"}}}}}),
                              Json({{"messages", {{{"tool_calls", {1, {{"function", "f"}}}}}}}})}) {
    EXPECT_EQ(with_parsed_tool_arguments(context), context);
  }
}

}  // namespace
}  // namespace hexlm
