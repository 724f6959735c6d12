#include <gtest/gtest.h>

#include "chat_template_support.hpp"

namespace hexlm {
namespace {

TEST(JinjaSnippets, AgreeWithJinja2) {
  const auto golden = read_json_data("tokenizers/jinja_snippets.json");
  size_t outputs = 0;
  size_t errors = 0;
  for (const auto& entry : golden["snippets"]) {
    const auto snippet = entry["snippet"].get<std::string>();
    SCOPED_TRACE(snippet);
    const auto rendered = render(snippet, entry["context"]);
    if (entry.contains("output")) {
      ++outputs;
      EXPECT_EQ(rendered ? *rendered : rendered.error().message, entry["output"].get<std::string>());
      continue;
    }
    ++errors;
    ASSERT_FALSE(rendered) << "jinja2 raises " << entry["error"] << ", we print " << *rendered;
    const std::string& message = rendered.error().message;
    EXPECT_TRUE(message.starts_with("test.jinja, line ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_EQ(outputs, 320);
  EXPECT_EQ(errors, 103);
}

TEST(JinjaSnippets, IntegersBeyond64BitsAreErrorsInsteadOfWrong) {
  for (const char* snippet :
       {"{{ 9223372036854775807 + 1 }}", "{{ 3037000500 * 3037000500 }}", "{{ 2 ** 63 }}", "{{ -x - 2 }}",
        "{{ 18446744073709551615 + 0 }}", "{{ 1e30|int }}", "{{ x ** x }}"}) {
    const auto rendered = render(snippet, {{"x", INT64_MAX}});
    ASSERT_FALSE(rendered) << snippet << " gives " << *rendered;
    EXPECT_EQ(rendered.error().code, ErrorCode::limit) << snippet;
  }
}

TEST(JinjaSnippets, TimeIsThatOfTheClock) {
  EXPECT_EQ(outcome("{{ strftime_now('%Y-%m-%dT%H:%M:%S.%f')|length }}"), "26");
  const auto year = render("{{ strftime_now('%Y')|int > 2023 }}");
  ASSERT_TRUE(year);
  EXPECT_EQ(*year, "True");
}

}  // namespace
}  // namespace hexlm
