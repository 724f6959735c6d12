#include <gtest/gtest.h>

#include "chat_template_support.hpp"

namespace hexlm {
namespace {

TEST(ChatTemplateErrors, NameTemplateLineAndColumn) {
  EXPECT_EQ(outcome("a\nb {{ x.y.z }}", {{"x", {{"k", 1}}}}),
            "test.jinja, line 2, column 10: 'dict object' has no attribute 'y'");
  EXPECT_EQ(outcome("é{{ 1 + 'a' }}"), "test.jinja, line 1, column 7: '+' does not apply to 'int' and 'str'");
  EXPECT_EQ(outcome("{% for m in messages %}\n  {{ m + 1 }}{% endfor %}", {{"messages", {"x"}}}),
            "test.jinja, line 2, column 8: '+' does not apply to 'str' and 'int'");
  EXPECT_EQ(outcome("{{ missing.x }}"), "test.jinja, line 1, column 12: 'missing' is undefined");
  EXPECT_EQ(outcome("{{ f() }}"), "test.jinja, line 1, column 4: 'f' is undefined");
  EXPECT_EQ(outcome("{{ 'a'.nothing() }}"),
            "test.jinja, line 1, column 8: 'str object' has no attribute 'nothing'");
}

TEST(ChatTemplateErrors, WithinAMacroNameTheMacrosLine) {
  EXPECT_EQ(outcome("{% macro m(a) %}\n{{ a / 0 }}{% endmacro %}\n\n{{ m(1) }}"),
            "test.jinja, line 2, column 6: division by zero");
}

TEST(ChatTemplateErrors, WhatATemplateRaisesStaysOnOneLine) {
  const auto raised = render("{{ raise_exception('No\\nsystem\\t\\x1b role') }}");
  ASSERT_FALSE(raised);
  EXPECT_EQ(raised.error().code, ErrorCode::bad_input);
  EXPECT_EQ(raised.error().message,
            "test.jinja, line 1, column 4: the template raised: No\\nsystem\\x09\\x1b role");
}

TEST(ChatTemplateErrors, UnknownNamesComeWithTheNearestKnownOne) {
  EXPECT_EQ(outcome("{{ 1|tojsn }}"),
            "test.jinja, line 1, column 6: there is no filter 'tojsn' [did you mean 'tojson'?]");
  EXPECT_EQ(outcome("{{ 1 is strng }}"),
            "test.jinja, line 1, column 9: there is no test 'strng' [did you mean 'string'?]");
  EXPECT_EQ(outcome("x\n{% fro a in b %}"),
            "test.jinja, line 2, column 4: there is no statement 'fro' [did you mean 'for'?]");
  EXPECT_EQ(outcome("{{ [1]|map('uper')|list }}"),
            "test.jinja, line 1, column 8: there is no filter 'uper' [did you mean 'upper'?]");
  EXPECT_EQ(outcome("{{ [1]|select('od')|list }}"),
            "test.jinja, line 1, column 8: there is no test 'od' [did you mean 'odd'?]");
}

TEST(ChatTemplateErrors, TellUnsupportedFromWrong) {
  for (const char* source :
       {"{% block a %}{% endblock %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% nothing %}",
        "{{ 1|urlize }}", "{{ 1 is nothing }}", "{{ '\\N{BULLET}' }}"}) {
    const auto parsed = ChatTemplate::parse(source, "t");
    ASSERT_FALSE(parsed) << source;
    EXPECT_EQ(parsed.error().code, ErrorCode::unsupported) << source << ": " << parsed.error().message;
  }
  for (const char* source : {"{{",
                             "{{ 'a }}",
                             "{% if %}{% endif %}",
                             "{% if a %}",
                             "{{ a b }}",
                             "{% else %}",
                             "{% set 1 = 2 %}",
                             "{% for a b %}{% endfor %}",
                             "{{ f(a=1, 2) }}",
                             "{{ f(a=1, a=2) }}",
                             "{{ ) }}",
                             "{{ a[] }}",
                             "{% macro m(a, a) %}{% endmacro %}",
                             "{% call x %}{% endcall %}",
                             "{{ '\\xZZ' }}",
                             "{{ a ? b }}",
                             "{% set true = 1 %}",
                             "{{ a. }}",
                             "{{ a| }}",
                             "{{ a is }}",
                             "{{ {1} }}",
                             "{{ {a: } }}"}) {
    const auto parsed = ChatTemplate::parse(source, "t");
    ASSERT_FALSE(parsed) << source;
    EXPECT_EQ(parsed.error().code, ErrorCode::bad_input) << source << ": " << parsed.error().message;
  }
}

TEST(ChatTemplateErrors, NameTheTagThatIsNotClosed) {
  EXPECT_EQ(outcome("a\n{% if x %}\n{% for y in z %}{% endfor %}"),
            "test.jinja, line 2, column 9: the 'if' has no 'endif'");
  EXPECT_EQ(outcome("\n\n  {# never ends"), "test.jinja, line 3, column 3: the comment has no end '#}'");
  EXPECT_EQ(outcome("{{ (1 }}"), "test.jinja, line 1, column 7: expected ')', got '}'");
  EXPECT_EQ(outcome("{% endfor %}"), "test.jinja, line 1, column 4: 'endfor' closes nothing here");
  EXPECT_EQ(outcome("{{ 1 + }}"), "test.jinja, line 1, column 8: expected an expression, got '}}'");
}

TEST(ChatTemplateErrors, RefuseTextThatIsNotUtf8) {
  const auto parsed = ChatTemplate::parse("a\xFF", "t");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::bad_input);
  EXPECT_EQ(outcome("{{ x }}", {{"x", "\xC3"}}), "test.jinja: the context: a text is not valid UTF-8");
  EXPECT_EQ(outcome("{{ x }}", {{"\xC3", 1}}), "test.jinja: the context: a key is not valid UTF-8");
}

TEST(ChatTemplateErrors, RefuseAContextThatIsNoObject) {
  EXPECT_EQ(outcome("x", nlohmann::ordered_json::array()),
            "test.jinja: expected an object as context, got array");
}

TEST(ChatTemplateErrors, WrongArgumentsNameFunctionAndParameter) {
  EXPECT_EQ(outcome("{{ 'a'.split(1) }}"),
            "test.jinja, line 1, column 8: split expects a string as 'sep', not 'int'");
  EXPECT_EQ(outcome("{{ 'a'|default(x=1) }}"), "test.jinja, line 1, column 8: default has no parameter 'x'");
  EXPECT_EQ(outcome("{{ {}.get() }}"), "test.jinja, line 1, column 7: get needs its argument 'key'");
  EXPECT_EQ(outcome("{{ 'a'|trim('x', 'y') }}"),
            "test.jinja, line 1, column 8: trim takes at most 1 arguments, not 2");
  EXPECT_EQ(outcome("{{ 'a'|indent(1, width=2) }}"),
            "test.jinja, line 1, column 8: indent got its parameter 'width' twice");
  EXPECT_EQ(outcome("{{ missing|int }}"), "test.jinja, line 1, column 12: 'missing' is undefined");
}

}  // namespace
}  // namespace hexlm
