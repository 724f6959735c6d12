#include <gtest/gtest.h>

#include "chat_template_support.hpp"

namespace hexlm {
namespace {

void expect_golden(const ChatTemplate& chat_template, const nlohmann::ordered_json& context,
                   const nlohmann::ordered_json& golden) {
  const auto rendered = chat_template.render(context);
  if (golden.contains("output")) {
    ASSERT_TRUE(rendered) << rendered.error().message;
    EXPECT_EQ(*rendered, golden["output"].get<std::string>());
    return;
  }
  ASSERT_FALSE(rendered) << "jinja2 raises " << golden.dump() << ", we print " << *rendered;
  EXPECT_EQ(rendered.error().code, ErrorCode::bad_input);
  if (golden["error"] == "TemplateError") {
    EXPECT_NE(rendered.error().message.find("the template raised: " + golden["message"].get<std::string>()),
              std::string::npos)
        << rendered.error().message;
  }
}

TEST(ChatTemplateGolden, RendersQwenTemplatesLikeTwoOtherEngines) {
  const std::string folder = "tokenizers/chat_templates/";
  const auto expected = read_json_data(folder + "expected.json");
  size_t cases = 0;
  for (const auto& [name, contexts] : expected["templates"].items()) {
    const auto chat_template = ChatTemplate::parse(read_text(folder + name), name);
    ASSERT_TRUE(chat_template) << chat_template.error().message;
    for (const auto& [context_name, golden] : contexts.items()) {
      SCOPED_TRACE(name + ", " + context_name);
      expect_golden(*chat_template, golden["context"], golden);
      ++cases;
    }
  }
  EXPECT_EQ(cases, 40);
}

TEST(ChatTemplateGolden, RendersToolsImagesReasoningAndErrorsLikeJinja2) {
  const auto golden = read_json_data("tokenizers/chat_template_golden.json");
  size_t cases = 0;
  for (const auto& [name, outcomes] : golden["templates"].items()) {
    const auto chat_template = ChatTemplate::parse(read_text(name), name);
    ASSERT_TRUE(chat_template) << chat_template.error().message;
    for (const auto& [context_name, context] : golden["contexts"].items()) {
      SCOPED_TRACE(name + ", " + context_name);
      expect_golden(*chat_template, context, outcomes[context_name]);
      ++cases;
    }
  }
  EXPECT_EQ(cases, 7 * 22);
}

TEST(ChatTemplateGolden, RendersTheSameTwiceAndAfterAMove) {
  auto parsed = ChatTemplate::parse("{% set x = x.pop() %}{{ x }}", "t");
  ASSERT_TRUE(parsed);
  const nlohmann::ordered_json context = {{"x", {1, 2}}};
  EXPECT_EQ(parsed->render(context).value_or("error"), "2");
  const ChatTemplate moved = std::move(*parsed);
  EXPECT_EQ(moved.render(context).value_or("error"), "2");
}

}  // namespace
}  // namespace hexlm
