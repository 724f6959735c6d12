#include "evaluation/html_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hexlm {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string uri_of(std::string_view text) { return data_uri(std::as_bytes(std::span(text))); }

TEST(DataUri, IsBase64OfTheRightType) {
  EXPECT_EQ(uri_of("a"), "data:application/octet-stream;base64,YQ==");
  EXPECT_EQ(uri_of("ab"), "data:application/octet-stream;base64,YWI=");
  EXPECT_EQ(uri_of("abc"), "data:application/octet-stream;base64,YWJj");
  EXPECT_EQ(uri_of(""), "data:application/octet-stream;base64,");
  EXPECT_EQ(uri_of("\xFF\xD8\xFF"), "data:image/jpeg;base64,/9j/");
  EXPECT_THAT(uri_of("\x89PNG\r\n"), HasSubstr("data:image/png;"));
  EXPECT_THAT(uri_of(std::string_view("RIFF\0\0\0\0WEBPVP8 ", 16)), HasSubstr("data:image/webp;"));
}

TEST(HtmlReport, HoldsItsDataAndLoadsNothing) {
  HtmlReport report;
  report.kind = "eval";
  report.title = "<model> & \"task\"";
  report.command = "hexlm eval";
  report.environment = {{"version", "1"}};
  report.result = {{"answer", "</script><script>alert(1)</script><!-- \xFF"}, {"rows", 3}};
  const std::string page = html_report(report);
  EXPECT_THAT(page, testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, HasSubstr("<title>&lt;model&gt; &amp; &quot;task&quot;</title>"));
  EXPECT_THAT(page, HasSubstr("width=device-width"));
  // The only scripts are the data and the page's own, and nothing is fetched.
  size_t scripts = 0;
  for (size_t at = page.find("<script"); at != std::string::npos; at = page.find("<script", at + 1))
    ++scripts;
  EXPECT_EQ(scripts, 2U);
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  for (const char* outside : {"src=\"http", "href=", "@import", "url(", "fetch("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  const std::string begin = "id=\"data\">\n";
  const size_t from = page.find(begin) + begin.size();
  const auto data = parse_json(page.substr(from, page.find("</script>", from) - from), "data");
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ((*data)["kind"], "eval");
  EXPECT_EQ((*data)["result"]["rows"], 3);
  EXPECT_EQ((*data)["result"]["answer"], "</script><script>alert(1)</script><!-- \xEF\xBF\xBD");
}

}  // namespace
}  // namespace hexlm
