#include "quantization/export.hpp"

#include <fmt/format.h>

#include "base/log.hpp"
#include "base/progress.hpp"
#include "base/text.hpp"
#include "hexlm/common.hpp"
#include "hexlm/verbs.hpp"
#include "hexlm/verify_package.hpp"

namespace hexlm::tool {
namespace {

Result<std::optional<Codec>> read_codec(const Arguments& arguments, std::string_view flag) {
  const std::string text = arguments.text(flag);
  if (text.empty()) return std::optional<Codec>();
  auto codec = parse_codec(text);
  if (codec) return std::optional<Codec>(*codec);
  Error error = codec.error();
  error.message = fmt::format("--{}: {}", flag, error.message);
  return tl::unexpected<Error>(std::move(error));
}

Result<ExportOptions> read_options(const Arguments& arguments) {
  const std::string method = arguments.text("method");
  if (method != "rtn") {
    return fail(ErrorCode::unsupported, fmt::format("the method {} is not there yet, only rtn", method),
                "leave --method out");
  }
  ExportOptions options;
  options.checkpoint = arguments.positional(0);
  options.package = arguments.text("output");
  HEXLM_ASSIGN(options.linear, read_codec(arguments, "quant"));
  HEXLM_ASSIGN(options.lm_head, read_codec(arguments, "lm-head"));
  HEXLM_ASSIGN(options.embedding, read_codec(arguments, "embedding"));
  HEXLM_ASSIGN(options.adapters, read_adapters(arguments));
  options.replace = arguments.toggle("force");
  options.threads = arguments.threads();
  options.argv = arguments.command();
  options.tool_version = tool_version;
  return options;
}

Table tensor_table(const ExportPlan& plan) {
  Table table;
  table.columns = {{"tensor"}, {"shape"}, {"source"}, {"codec"}, {"bytes", true}, {"note"}};
  for (const ExportTensor& tensor : plan.tensors) {
    table.rows.push_back({tensor.name, format_shape(tensor.shape), tensor.source_dtype,
                          to_string(tensor.codec), std::to_string(tensor.stored_bytes), tensor.note});
  }
  return table;
}

Json tensors_json(const ExportPlan& plan) {
  Json tensors = Json::array();
  for (const ExportTensor& tensor : plan.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"role", to_string(tensor.role)},
                       {"source_dtype", tensor.source_dtype},
                       {"codec", to_string(tensor.codec)},
                       {"source_bytes", tensor.source_bytes},
                       {"bytes", tensor.stored_bytes},
                       {"note", tensor.note}});
  }
  return tensors;
}

void print_plan(const ExportPlan& plan, const ExportOptions& options, Format format) {
  Report report;
  report.json = {{"package", options.package},
                 {"dry_run", true},
                 {"bytes", plan.bytes},
                 {"bits_per_weight", plan.bits_per_weight},
                 {"linear_bits_per_weight", plan.linear_bits_per_weight},
                 {"tensors", tensors_json(plan)},
                 {"peak_memory_bytes", plan.peak_memory_bytes},
                 {"free_disk_bytes", plan.free_disk_bytes},
                 {"notes", plan.notes}};
  report.rows_key = "tensors";
  report.table = tensor_table(plan);
  print(report, format);
  if (format != Format::text) return;
  print(fmt::format("\n{} tensors, {}, {:.3f} bits per weight (linears {:.3f})\n", plan.tensors.size(),
                    format_bytes(plan.bytes), plan.bits_per_weight, plan.linear_bits_per_weight));
  print(fmt::format("peak memory about {}", format_bytes(plan.peak_memory_bytes)));
  print(options.package.empty() ? "\n"
                                : fmt::format(", {} free on the disk\n", format_bytes(plan.free_disk_bytes)));
}

Report result_report(const ExportPlan& plan, const ExportOptions& options, const ExportResult& result) {
  Report report;
  report.json = {{"package", options.package},
                 {"bytes", result.bytes},
                 {"bits_per_weight", result.bits_per_weight},
                 {"tensors", tensors_json(plan)},
                 {"peak_memory_bytes", result.peak_memory_bytes},
                 {"seconds", result.seconds},
                 {"notes", plan.notes}};
  report.table = tensor_table(plan);
  return report;
}

void print_result(const Report& report, const ExportOptions& options, const ExportResult& result,
                  const std::optional<Verification>& verification, Format format) {
  if (format != Format::text) return print(report, format);
  print(fmt::format("{}: {}, {:.3f} bits per weight, {:.1f} s, peak memory {}\n", options.package,
                    format_bytes(result.bytes), result.bits_per_weight, result.seconds,
                    format_bytes(result.peak_memory_bytes)));
  if (verification) print(describe(*verification) + "\n");
}

}  // namespace

Result<int> run_export(Arguments& arguments) {
  const Format format = format_of(arguments);
  HEXLM_ASSIGN(const ExportOptions options, read_options(arguments));
  const bool dry_run = arguments.toggle("dry-run");
  if (!dry_run) HEXLM_TRY(require(arguments, "output"));
  HEXLM_ASSIGN(const ExportPlan plan, plan_export(options));
  for (const std::string& text : plan.notes) note("note: " + text);
  if (dry_run) {
    print_plan(plan, options, format);
    return 0;
  }
  HEXLM_ASSIGN(const ExportResult result, export_package(options, plan, terminal_progress("export")));
  Report report = result_report(plan, options, result);
  std::optional<Verification> verification;
  if (arguments.toggle("verify")) {
    HEXLM_ASSIGN(verification, verify_package(options, plan));
    report.json["verification"] = to_json(*verification);
  }
  print_result(report, options, result, verification, format);
  if (!verification || verification->passed()) return 0;
  // The result above is complete: only the verdict is left to say.
  const Error error = verification->error();
  print_error(error, false);
  return static_cast<int>(error.code);
}

}  // namespace hexlm::tool
