#pragma once

#include <span>
#include <string>

#include "formats/json.hpp"

namespace hexlm {

/// A result as one page that needs nothing else: styles, script and data are inside, nothing is loaded.
struct HtmlReport {
  std::string kind;  ///< "eval", "compare" or "bench": which plots and tables are drawn
  std::string title;
  std::string command;  ///< the command line that made it
  std::string created;  ///< date and time
  Json environment;
  Json result;                   ///< what the verb prints with --format json
  Json images = Json::object();  ///< file name to data URI, for the rows that show one
};

/// The page. The data lies in it as JSON (script element "data"), escaped so that no text in it can end the
/// element.
std::string html_report(const HtmlReport& report);

/// "data:image/png;base64,…"; the type follows from the first bytes (PNG, JPEG, WebP; else
/// application/octet-stream).
std::string data_uri(std::span<const std::byte> bytes);

}  // namespace hexlm
