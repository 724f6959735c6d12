#include "backends/backend.hpp"

#include <array>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.hpp"
#include "backends/null/null_backends.hpp"
#include "base/text.hpp"

namespace hexlm {

std::string_view to_string(Precision precision) {
  switch (precision) {
    case Precision::low:
      return "low";
    case Precision::normal:
      return "normal";
    case Precision::high:
      return "high";
  }
  return "?";
}

Result<std::unique_ptr<Backend>> make_backend(std::string_view name) {
  if (name == cpu_backend_name) return make_cpu_backend();
  std::vector<std::string> known{std::string(cpu_backend_name)};
  for (const NullBackend& absent : null_backends()) {
    if (absent.name == name) return tl::unexpected<Error>(absence(absent));
    known.emplace_back(absent.name);
  }
  return fail(
      ErrorCode::usage, fmt::format("unknown backend '{}'", name),
      fmt::format("did you mean {}? The backends are {}", nearest(name, known), fmt::join(known, ", ")));
}

}  // namespace hexlm
