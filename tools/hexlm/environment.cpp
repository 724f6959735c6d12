#include "hexlm/environment.hpp"

#include <fmt/format.h>
#include <fstream>

#include "base/cpu_features.hpp"
#include "base/processors.hpp"
#include "formats/package.hpp"
#include "hexlm/common.hpp"
#include "kernels/kernels.hpp"

namespace hexlm::tool {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

/// "" where the system does not tell.
std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

}  // namespace

Result<Json> describe_environment() {
  HEXLM_ASSIGN(const KernelSet* selected, select_kernels());
  Json sets = Json::array();
  for (const KernelSet* set : kernel_sets()) sets.push_back(set->name);
  return Json{{"version", tool_version},
              {"package_format", package_format_version},
              {"compiler", compiler()},
              {"kernels", selected->name},
              {"kernel_sets", std::move(sets)},
              {"processor", processor_name()},
              {"features", describe(cpu_features())},
              {"threads", available_threads()},
              {"threads_auto", describe(choose_processors("/sys", allowed_processors()))}};
}

}  // namespace hexlm::tool
