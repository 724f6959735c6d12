#include "quantization/merge.hpp"

#include <fmt/format.h>

#include "base/progress.hpp"
#include "base/text.hpp"
#include "hexlm/common.hpp"
#include "hexlm/verbs.hpp"

namespace hexlm::tool {

Result<int> run_merge(Arguments& arguments) {
  HEXLM_TRY(require(arguments, "output"));
  HEXLM_TRY(require(arguments, "adapter"));
  MergeOptions options;
  options.checkpoint = arguments.positional(0);
  options.output = arguments.text("output");
  const std::string dtype = arguments.text("dtype");
  options.dtype = dtype == "f16" ? DType::f16 : dtype == "bf16" ? DType::bf16 : DType::f32;
  options.replace = arguments.toggle("force");
  options.tool_version = tool_version;
  HEXLM_ASSIGN(options.adapters, read_adapters(arguments));
  HEXLM_ASSIGN(const MergeResult result, merge_checkpoint(options, terminal_progress("merge")));
  Report report;
  report.json = {{"checkpoint", options.output},
                 {"tensors", result.tensors},
                 {"tensors_changed", result.tensors_changed},
                 {"bytes", result.bytes}};
  report.summary = fmt::format("{}: {} of {} tensors changed, {}\n", options.output, result.tensors_changed,
                               result.tensors, format_bytes(result.bytes));
  print(report, format_of(arguments));
  return 0;
}

}  // namespace hexlm::tool
