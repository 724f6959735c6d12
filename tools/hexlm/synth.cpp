#include <fmt/format.h>

#include "base/progress.hpp"
#include "base/text.hpp"
#include "hexlm/common.hpp"
#include "hexlm/verbs.hpp"
#include "quantization/synthesize.hpp"

namespace hexlm::tool {

Result<int> run_synth(Arguments& arguments) {
  HEXLM_TRY(require(arguments, "output"));
  SynthesizeOptions options;
  options.config = arguments.positional(0);
  options.output = arguments.text("output");
  const std::string dtype = arguments.text("dtype");
  options.dtype = dtype == "f32" ? DType::f32 : dtype == "f16" ? DType::f16 : DType::bf16;
  options.seed = static_cast<uint64_t>(arguments.integer("seed"));
  options.replace = arguments.toggle("force");
  options.threads = arguments.threads();
  HEXLM_ASSIGN(const SynthesizeResult result, synthesize(options, terminal_progress("synth")));
  Report report;
  report.json = {{"checkpoint", options.output}, {"bytes", result.bytes}, {"parameters", result.parameters}};
  report.summary =
      fmt::format("{}: {} parameters, {}\n", options.output, result.parameters, format_bytes(result.bytes));
  print(report, format_of(arguments));
  return 0;
}

}  // namespace hexlm::tool
