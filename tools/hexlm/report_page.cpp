#include "hexlm/report_page.hpp"

#include <ctime>
#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "evaluation/html_report.hpp"
#include "hexlm/environment.hpp"

namespace hexlm::tool {
namespace {

/// Pages above some 20 MB are slow to open on a phone.
constexpr uint64_t most_image_bytes = uint64_t{16} << 20;

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  const size_t size = std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  return {text, size};
}

Json images_of(const Json& result) {
  Json images = Json::object();
  const auto failures = result.find("failures");
  if (failures == result.end()) return images;
  uint64_t left = most_image_bytes;
  for (const Json& failure : *failures) {
    if (!failure.contains("image")) continue;
    const auto path = failure["image"].get<std::string>();
    const auto bytes = read_file(path, left);
    // A page without one of its pictures is better than none.
    if (!bytes || images.contains(path)) continue;
    left -= bytes->size();
    images[path] = data_uri(std::as_bytes(std::span(*bytes)));
  }
  return images;
}

}  // namespace

Status write_report_page(const Arguments& arguments, const std::string& kind, const std::string& title,
                         const Json& result) {
  if (!arguments.has("report")) return {};
  HtmlReport report;
  report.kind = kind;
  report.title = title;
  report.command = fmt::format("{}", fmt::join(arguments.command(), " "));
  report.created = now_utc();
  HEXLM_ASSIGN(report.environment, describe_environment());
  report.result = result;
  report.images = images_of(result);
  return write_file_atomically(arguments.text("report"), html_report(report));
}

}  // namespace hexlm::tool
