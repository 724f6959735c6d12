#include "hexlm/bench_grid.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "base/text.hpp"

namespace hexlm::tool {
namespace {

Result<std::vector<std::string>> read_list(const Arguments& arguments, const char* flag,
                                           const std::vector<std::string>& known) {
  std::vector<std::string> values;
  const std::string list = arguments.text(flag);
  for (const std::string_view part : split(list, ',')) {
    if (std::find(known.begin(), known.end(), part) == known.end()) {
      return fail(ErrorCode::usage,
                  fmt::format("--{} must be of {}, got \"{}\"", flag, fmt::join(known, ", "), part),
                  fmt::format("did you mean {}?", nearest(part, known)));
    }
    values.emplace_back(part);
  }
  return values;
}

}  // namespace

Result<std::vector<GridSetting>> read_grid(const Arguments& arguments) {
  HEXLM_ASSIGN(const auto backends,
               read_list(arguments, "backend", {"cpu", "opencl", "hexagon", "qnn", "onnxruntime"}));
  HEXLM_ASSIGN(const auto precisions, read_list(arguments, "precision", {"low", "normal", "high"}));
  const std::string thread_list = arguments.text("threads");
  std::vector<GridSetting> grid;
  for (const std::string& backend : backends) {
    for (const std::string_view threads : split(thread_list, ',')) {
      for (const std::string& precision : precisions)
        grid.push_back({backend, read_threads(threads).threads, std::string(threads), precision});
    }
  }
  return grid;
}

Arguments with_setting(const Arguments& arguments, const GridSetting& setting) {
  return arguments.with({{"backend", {setting.backend}},
                         {"threads", {setting.threads_text}},
                         {"precision", {setting.precision}}});
}

}  // namespace hexlm::tool
