#include <gtest/gtest.h>
#include <pthread.h>
#include <string>

#include "chat_template_support.hpp"

namespace hexlm {
namespace {

std::string repeated(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

void expect_limit(const std::string& source, const std::string& reason) {
  const auto rendered = render(source, {{"messages", {1, 2, 3}}});
  ASSERT_FALSE(rendered) << source.substr(0, 200);
  EXPECT_EQ(rendered.error().code, ErrorCode::limit)
      << source.substr(0, 200) << ": " << rendered.error().message;
  EXPECT_NE(rendered.error().message.find(reason), std::string::npos) << rendered.error().message;
}

// Template text that doubles, or otherwise grows, what a small step before it made.
constexpr const char* doubling = "{% set ns = namespace(x='0123456789', l=[1]) %}{% for i in range(60) %}";

TEST(JinjaLimits, Steps) {
  const std::string loop = "{% for i in range(100000) %}";
  expect_limit(loop + loop + loop + "{% endfor %}{% endfor %}{% endfor %}", "10 million steps");
  expect_limit("{% set l = range(90000)|list %}{% for i in l %}{{ i in l }}{% endfor %}", "10 million steps");
  expect_limit("{% for i in range(100000) %}{% set l = range(50000)|list %}{% endfor %}", "10 million steps");
  expect_limit("{% set s = 'a' * 20000000 %}{% for i in range(100000) %}{{ s|length }}{% endfor %}",
               "10 million steps");
  expect_limit("{% set s = 'a' * 20000000 %}{% for i in range(100000) %}{{ s == s ~ '' }}{% endfor %}",
               "10 million steps");
}

TEST(JinjaLimits, Output) {
  expect_limit("{% set s = 'a' * 1000000 %}{% for i in range(70) %}{{ s }}{% endfor %}",
               "output exceeds 64 MiB");
  expect_limit(
      "{% macro m(n) %}{{ 'a' * 1000000 }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(90) }}",
      "64 MiB");
}

TEST(JinjaLimits, Memory) {
  const std::string end = "{% endfor %}";
  expect_limit("{{ 'a' * 1000000000 }}", "256 MiB");
  expect_limit("{{ 'abcdefgh' * 9223372036854775807 }}", "256 MiB");
  expect_limit("{{ [1, 2] * 1000000000 }}", "256 MiB");
  expect_limit(doubling + std::string("{% set ns.x = ns.x ~ ns.x %}") + end, "256 MiB");
  expect_limit(doubling + std::string("{% set ns.x = ns.x + ns.x %}") + end, "256 MiB");
  expect_limit(doubling + std::string("{% set ns.x = ns.x|replace('0', ns.x) %}") + end, "256 MiB");
  expect_limit(doubling + std::string("{% set ns.x = ns.x.join([ns.x, ns.x]) %}") + end, "256 MiB");
  expect_limit(doubling + std::string("{% set ns.x = ns.x|list|join(ns.x) %}") + end, "256 MiB");
  expect_limit(doubling + std::string("{% set ns.x = [ns.x, ns.x]|tojson %}") + end, "256 MiB");
  expect_limit(doubling + std::string("{% set ns.x = (ns.x ~ '<')|e ~ ns.x %}") + end, "256 MiB");
  expect_limit(doubling + std::string("{% set ns.l = ns.l + ns.l %}") + end, "256 MiB");
  expect_limit("{{ 'a\\nb'|indent(2000000000) }}", "256 MiB");
  expect_limit("{{ [1]|tojson(indent=2000000000) }}", "256 MiB");
  expect_limit("{{ 'a'.center(2000000000) }}{{ 'a'.zfill(2000000000) }}", "256 MiB");
  expect_limit("{{ '%999999999d' % 1 }}", "256 MiB");
  expect_limit("{{ '{:999999999}'.format(1) }}", "256 MiB");
  expect_limit("{% set s = 'a' * 100000000 %}{{ s|list }}", "256 MiB");
}

TEST(JinjaLimits, SharedValuesThatWriteOutExponentially) {
  const std::string build =
      "{% set ns = namespace(l=['x']) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}";
  for (const char* use : {"{{ ns.l }}", "{{ ns.l|tojson }}", "{{ ns.l|string|length }}"}) {
    const auto rendered = render(build + use);
    ASSERT_FALSE(rendered) << use;
    EXPECT_EQ(rendered.error().code, ErrorCode::limit) << use << ": " << rendered.error().message;
  }
  const auto rendered =
      render(build +
             "{% set a = ns.l %}{% set ns.l = ['x'] %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] "
             "%}{% endfor %}{{ a == ns.l }}");
  ASSERT_FALSE(rendered);
  EXPECT_EQ(rendered.error().code, ErrorCode::limit);
  // The same as keys of a dict, which are flattened.
  const auto keys = render(
      "{% set ns = namespace(t=('x',)) %}{% for i in range(100) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}"
      "{{ {ns.t: 1} }}");
  ASSERT_FALSE(keys);
}

TEST(JinjaLimits, NestingOfTheTemplate) {
  const int deep = 40000;
  expect_limit("{{ " + repeated("(", deep) + "1" + repeated(")", deep) + " }}", "nests deeper than 200");
  expect_limit("{{ " + repeated("[", deep) + repeated("]", deep) + " }}", "nests deeper than 200");
  expect_limit("{{ " + repeated("{1:", deep) + "1" + repeated("}", deep) + " }}", "nests deeper than 200");
  expect_limit("{{ " + repeated("not ", deep) + "1 }}", "nests deeper than 200");
  expect_limit("{{ " + repeated("-", deep) + "1 }}", "nests deeper than 200");
  expect_limit("{{ x" + repeated(".a", deep) + " }}", "nests deeper than 200");
  expect_limit("{{ x" + repeated("|e", deep) + " }}", "nests deeper than 200");
  expect_limit("{{ x" + repeated("()", deep) + " }}", "nests deeper than 200");
  expect_limit("{{ 1" + repeated(" if 0 else 1", deep) + " }}", "nests deeper than 200");
  expect_limit(repeated("{% if 1 %}", deep) + repeated("{% endif %}", deep), "nests deeper than 200");
  expect_limit(repeated("{% for a in b %}", deep), "nests deeper than 200");
  expect_limit("{% set " + repeated("(", deep) + "a" + repeated(")", deep) + " = 1 %}",
               "nests deeper than 200");
  expect_limit("{{ " + repeated("f(", deep) + repeated(")", deep) + " }}", "nests deeper than 200");
}

TEST(JinjaLimits, LongChainsAreNotNesting) {
  const int terms = 20000;
  EXPECT_EQ(outcome("{{ 1" + repeated(" + 1", terms) + " }}"), "20001");
  EXPECT_EQ(outcome("{{ (''" + repeated(" ~ 'a'", terms) + ")|length }}"), "20000");
  EXPECT_EQ(outcome("{{ 0" + repeated(" or 0", terms) + " }}"), "0");
  EXPECT_EQ(outcome("{% if 0 %}" + repeated("{% elif 0 %}", terms) + "{% else %}x{% endif %}"), "x");
}

TEST(JinjaLimits, RecursionAndValueDepth) {
  expect_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls itself too deeply");
  expect_limit("{% macro m(n) %}{{ caller is defined }}{% call m(n) %}{% endcall %}{% endmacro %}{{ m(1) }}",
               "calls itself too deeply");
  expect_limit("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", "calls itself too deeply");
  for (const char* wrap :
       {"[ns.x]", "(ns.x,)", "{'k': ns.x}", "[ns.x].index", "[ns.x]|map('list')", "joiner(ns.x)"}) {
    expect_limit("{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = " +
                     std::string(wrap) + " %}{% endfor %}",
                 "nests values deeper than 320");
  }
  EXPECT_EQ(outcome("{% macro m(n) %}{{ n }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(20) }}"),
            "20191817161514131211109876543210");
}

TEST(JinjaLimits, CircularReferencesEndWithTheRendering) {
  // A leak checker sees what is left; each of these makes a cycle.
  EXPECT_EQ(outcome("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self is defined }}"), "True");
  EXPECT_EQ(outcome("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ (ns|string)|length > 0 }}"), "True");
  EXPECT_EQ(outcome("{% for i in [1] %}{% set _ = loop.changed(loop) %}x{% endfor %}"), "x");
  EXPECT_EQ(outcome("{% macro m() %}{% endmacro %}{% set ns = namespace(m=m) %}x"), "x");
  EXPECT_EQ(
      outcome("{% set ns = namespace() %}{% for i in [1] recursive %}{% set ns.l = loop %}{% endfor %}x"),
      "x");
}

TEST(JinjaLimits, LongListsOfKeptObjects) {
  expect_limit(
      "{% set ns = namespace(p=none) %}{% for i in range(100000) %}{% for j in range(100) %}"
      "{% set ns.p = namespace(p=ns.p) %}{% endfor %}{% endfor %}",
      "the template");
  expect_limit(
      "{% set ns = namespace(m=none) %}{% for i in range(100000) %}{% for j in range(100) %}{% set p = ns.m "
      "%}"
      "{% macro m() %}{{ p }}{% endmacro %}{% set ns.m = m %}{% endfor %}{% endfor %}",
      "the template");
}

TEST(JinjaLimits, SearchesStayLinear) {
  // Quadratic searches would take hours here.
  EXPECT_EQ(
      outcome("{% set a = 'a' * 4000000 %}{% set b = 'a' * 2000000 ~ 'b' %}{{ b in a }}{{ a.find(b) }}{{ "
              "a.rfind(b) }}"
              "{{ a.count(b) }}{{ a.split(b)|length }}{{ a.rsplit(b)|length }}{{ a.replace(b, '')|length }}"),
      "False-1-10114000000");
  EXPECT_EQ(outcome("{% set a = 'a' * 4000000 %}{{ a.strip('b' * 4000000)|length }}"), "4000000");
}

TEST(JinjaLimits, SourceSizeAndNamedArguments) {
  const auto parsed = ChatTemplate::parse(std::string((size_t{1} << 20) + 1, ' '), "t");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::limit);
  std::string parameters = "a0";
  for (int i = 1; i < 300; ++i) parameters += ", a" + std::to_string(i);
  expect_limit("{% macro m(" + parameters + ") %}{% endmacro %}", "255 named arguments");
  expect_limit("{{ strftime_now('%c' * 600) }}", "time format");
}

TEST(JinjaLimits, ContextDepth) {
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 319; ++i) deep = nlohmann::ordered_json::array({std::move(deep)});
  EXPECT_TRUE(render("{{ x|tojson }}{{ x }}", {{"x", deep}}));
  deep = nlohmann::ordered_json::array({std::move(deep)});
  const auto rendered = render("{{ x }}", {{"x", deep}});
  ASSERT_FALSE(rendered);
  EXPECT_EQ(rendered.error().code, ErrorCode::limit);
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#elif defined(__has_feature)
constexpr bool sanitized = __has_feature(address_sanitizer);
#else
constexpr bool sanitized = false;
#endif

// Secondary threads have 1 MiB or less elsewhere; the address sanitizer makes every frame several times
// larger.
constexpr size_t stack_bytes = sanitized ? size_t{8} << 20 : size_t{1} << 20;

/// Runs `body` on a thread with such a stack.
void run_on_small_stack(void* (*body)(void*)) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, stack_bytes), 0);
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &attributes, body, nullptr), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST(JinjaLimits, TheDeepestTemplateFitsAStackOfOneMegabyte) {
  run_on_small_stack([](void*) -> void* {
    const int levels = 190;
    EXPECT_EQ(outcome("{{ " + repeated("(", levels) + "1" + repeated(")", levels) + " }}"), "1");
    EXPECT_EQ(outcome(repeated("{% if 1 %}", 190) + "x" + repeated("{% endif %}", 190)), "x");
    EXPECT_NE(outcome("{{ " + repeated("[-(not(", 1000)), "");
    EXPECT_NE(outcome("{% macro m(n) %}{% for i in [1] %}{{ [[[[[m(n)|upper]]]]] }}{% endfor %}{% endmacro "
                      "%}{{ m(1) }}"),
              "");
    EXPECT_NE(
        outcome(
            "{% macro m(n) %}{{ caller is defined }}{% call m(n) %}{% endcall %}{% endmacro %}{{ m(1) }}"),
        "");
    EXPECT_NE(outcome("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}"), "");
    EXPECT_NE(outcome("{% set ns = namespace(x=[]) %}{% for i in range(318) %}{% set ns.x = [ns.x] %}{% "
                      "endfor %}{{ ns.x|tojson }}"
                      "{{ ns.x }}{{ ns.x == ns.x }}"),
              "");
    return nullptr;
  });
}

}  // namespace
}  // namespace hexlm
