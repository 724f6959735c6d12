#include <cstdlib>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/vector_sets.hpp"

namespace hexlm {

namespace {

std::vector<const KernelSet*> all_sets() {
  const auto vector_sets = vector_kernel_sets();
  std::vector<const KernelSet*> sets(vector_sets.begin(), vector_sets.end());
  sets.push_back(&reference_kernels());
  return sets;
}

std::string names(bool only_supported) {
  std::string text;
  for (const KernelSet* set : kernel_sets()) {
    if (only_supported && !set->supported(cpu_features())) continue;
    text += text.empty() ? set->name : fmt::format(", {}", set->name);
  }
  return text;
}

Result<const KernelSet*> named_set(std::string_view name) {
  for (const KernelSet* set : kernel_sets()) {
    if (name != set->name) continue;
    if (set->supported(cpu_features())) return set;
    return fail(
        ErrorCode::device,
        fmt::format("HEXLM_ISA: kernel set {} needs instructions that this processor lacks (it has {})", name,
                    describe(cpu_features())),
        fmt::format("unset HEXLM_ISA or choose one of {}", names(true)));
  }
  return fail(ErrorCode::usage,
              fmt::format("HEXLM_ISA: unknown kernel set \"{}\", expected one of {}", name, names(false)),
              "unset HEXLM_ISA to let hexlm choose the best set for this processor");
}

}  // namespace

std::span<const KernelSet* const> kernel_sets() {
  static const std::vector<const KernelSet*> sets = all_sets();
  return sets;
}

Result<const KernelSet*> select_kernels() {
  const char* wanted = std::getenv("HEXLM_ISA");
  if (wanted != nullptr && *wanted != '\0') return named_set(wanted);
  for (const KernelSet* set : kernel_sets()) {
    if (set->supported(cpu_features())) return set;
  }
  return &reference_kernels();
}

}  // namespace hexlm
