#include <fmt/format.h>

#include "hexlm/environment.hpp"
#include "hexlm/report.hpp"
#include "hexlm/verbs.hpp"

namespace hexlm::tool {

Result<int> run_version(Arguments& arguments) {
  HEXLM_ASSIGN(const Json environment, describe_environment());
  Report report;
  report.json = environment;
  for (const auto& [key, value] : environment.items()) {
    std::string text;
    if (value.is_array()) {
      for (const Json& item : value) text += (text.empty() ? "" : ", ") + item.get<std::string>();
    } else {
      text = value.is_string() ? value.get<std::string>() : value.dump();
    }
    report.summary += fmt::format("{:<16}{}\n", key, text);
  }
  print(report, format_of(arguments));
  return 0;
}

}  // namespace hexlm::tool
