#include "evaluation/html_report.hpp"

#include <cstdint>
#include <fmt/format.h>

#include "evaluation/html_page.hpp"

namespace hexlm {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

/// JSON without "<": neither "</script" nor "<!--" can occur in it.
std::string script_safe(const Json& json) {
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace);
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      result += "\\u003c";
    } else {
      result += c;
    }
  }
  return result;
}

std::string_view media_type(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG")) return "image/png";
  if (bytes.starts_with("\xFF\xD8\xFF")) return "image/jpeg";
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) return "image/webp";
  return "application/octet-stream";
}

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8U | (i + k < bytes.size() ? static_cast<uint32_t>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) {
      const bool padding = i + k > bytes.size();
      text += padding ? '=' : digits[group >> (18 - 6 * k) & 63U];
    }
  }
  return text;
}

}  // namespace

std::string html_report(const HtmlReport& report) {
  Json data = {{"kind", report.kind},
               {"title", report.title},
               {"command", report.command},
               {"created", report.created},
               {"environment", report.environment},
               {"images", report.images},
               {"result", report.result}};
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>\n{1}</style>\n</head>\n<body>\n<main id=\"page\">\n<h1>{0}</h1>\n"
      "<noscript>The plots need JavaScript; the data is in this file as JSON.</noscript>\n</main>\n"
      "<script type=\"application/json\" id=\"data\">\n{2}\n</script>\n<script>\n{3}{4}</script>\n"
      "</body>\n</html>\n",
      escaped(report.title), report_style, script_safe(data), report_plots, report_script);
}

std::string data_uri(std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 16));
  return fmt::format("data:{};base64,{}", media_type(start), base64(bytes));
}

}  // namespace hexlm
