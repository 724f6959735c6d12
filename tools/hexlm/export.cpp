#include "quantization/export.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

#include "backends/cpu/prepack.hpp"
#include "base/log.hpp"
#include "base/progress.hpp"
#include "base/text.hpp"
#include "evaluation/verify_package.hpp"
#include "hexlm/calibration.hpp"
#include "hexlm/common.hpp"
#include "hexlm/verbs.hpp"
#include "quantization/bit_budget.hpp"
#include "quantization/calibrated_export.hpp"
#include "quantization/source_model.hpp"
#include "runtime/calibration_runner.hpp"
#include "runtime/model_files.hpp"
#include "tokenizer/chat_template.hpp"

namespace hexlm::tool {
namespace {

Result<std::optional<Codec>> read_codec(const Arguments& arguments, std::string_view flag) {
  const std::string text = arguments.text(flag);
  if (text.empty() && !arguments.has(flag)) return std::optional<Codec>();
  auto codec = parse_codec(text);
  if (codec) return std::optional<Codec>(*codec);
  Error error = codec.error();
  error.message = fmt::format("--{}: {}", flag, error.message);
  return tl::unexpected<Error>(std::move(error));
}

Result<ExportOptions> read_options(const Arguments& arguments) {
  ExportOptions options;
  HEXLM_ASSIGN(options.method, parse_method(arguments.text("method")));
  options.work = arguments.text("work");
  options.statistics = arguments.text("statistics");
  options.save_statistics = arguments.text("save-statistics");
  if (const std::string method = arguments.text("vision-method"); !method.empty()) {
    HEXLM_ASSIGN(options.vision_method, parse_method(method));
  }
  options.checkpoint = arguments.positional(0);
  options.package = arguments.text("output");
  HEXLM_ASSIGN(options.linear, read_codec(arguments, "quant"));
  HEXLM_ASSIGN(options.lm_head, read_codec(arguments, "lm-head"));
  HEXLM_ASSIGN(options.embedding, read_codec(arguments, "embedding"));
  HEXLM_ASSIGN(options.vision, read_codec(arguments, "vision"));
  if (const std::string recipe = arguments.text("recipe"); !recipe.empty()) {
    HEXLM_ASSIGN(options.recipe, read_recipe(recipe));
  }
  HEXLM_ASSIGN(options.adapters, read_adapters(arguments));
  options.rotate = arguments.toggle("rotate");
  options.replace = arguments.toggle("force");
  options.threads = arguments.threads();
  options.argv = arguments.command();
  options.tool_version = tool_version;
  return options;
}

/// Said at export, where the checkpoint can still be mended.
void warn_of_chat_template(const std::string& checkpoint) {
  const Result<ChatFiles> files = read_chat_files(checkpoint);
  if (!files || !files->source) return;
  const Result<ChatTemplate> parsed = ChatTemplate::parse(*files->source, files->origin);
  if (parsed) return;
  log_warning(fmt::format("the chat template can't be used, `run` will need --raw or --chat-template: {}",
                          one_line(parsed.error().message)));
}

bool exists(const std::string& path) {
  std::error_code error;
  return !path.empty() && std::filesystem::exists(std::filesystem::symlink_status(path, error));
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
                       {"file", tensor.file},
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
                 {"package_exists", exists(options.package)},
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

/// Measures, shows the table and adds the choice to the recipe.
Result<std::vector<BitChoice>> spend_bits(const ExportPlan& plan, ExportOptions& options, double target) {
  HEXLM_ASSIGN(const SourceModel source,
               open_source_model(options.checkpoint, options.adapters, options.rotate));
  HEXLM_ASSIGN(std::vector<BitChoice> choices,
               hexlm::spend_bits(plan, source.weights, options.calibration->texts(), *options.runner, target,
                                 options.threads, terminal_progress("sensitivity")));
  note(fmt::format("{:44} {:>12} {:>10} {:>8}", "tensor", "KL at 3 bits", "codec", "damage"));
  for (const BitChoice& choice : choices) {
    const BitOption& option = choice.options[choice.chosen];
    note(fmt::format("{:44} {:12.6f} {:>10} {:8.6f}", choice.name, choice.sensitivity,
                     to_string(option.codec), option.damage));
    options.recipe.rules.push_back({choice.name, option.codec});
  }
  return choices;
}

Json to_json(const std::vector<BitChoice>& choices) {
  Json rows = Json::array();
  for (const BitChoice& choice : choices) {
    const BitOption& option = choice.options[choice.chosen];
    rows.push_back({{"name", choice.name},
                    {"sensitivity", choice.sensitivity},
                    {"codec", to_string(option.codec)},
                    {"damage", option.damage}});
  }
  return rows;
}

/// After the package is complete: whatever stops this leaves a package that is whole.
Status add_prepacked(const Arguments& arguments, const ExportOptions& options, Report& report) {
  HEXLM_ASSIGN(const auto model, Model::open(options.package, {options.threads, false, {}, false}));
  std::vector<const Graph*> graphs = {model->graph().get()};
  if (model->vision_graph() != nullptr) graphs.push_back(model->vision_graph().get());
  const auto package = std::dynamic_pointer_cast<const Package>(model->weights());
  const std::string target = arguments.text("prepack");
  HEXLM_ASSIGN(const PrepackResult made,
               prepack(package, graphs, target, options.threads, terminal_progress("prepack")));
  report.json["prepacked"] = {
      {"target", target}, {"layout", made.layout}, {"tensors", made.tensors}, {"bytes", made.bytes}};
  note(fmt::format("prepacked {} matrices for {}: {} more", made.tensors, target, format_bytes(made.bytes)));
  return {};
}

}  // namespace

Result<int> run_export(Arguments& arguments) {
  const Format format = format_of(arguments);
  HEXLM_ASSIGN(ExportOptions options, read_options(arguments));
  const bool dry_run = arguments.toggle("dry-run");
  if (!dry_run) HEXLM_TRY(require(arguments, "output"));
  HEXLM_ASSIGN(ExportPlan plan, plan_export(options));
  const bool by_budget = !arguments.text("target-bits").empty();
  std::unique_ptr<GraphRunner> runner;
  if (by_budget || is_calibrated(options)) {
    if (by_budget || options.statistics.empty()) HEXLM_TRY(require(arguments, "calibration"));
    HEXLM_ASSIGN(options.calibration, read_calibration(arguments, options.checkpoint));
    if (!options.calibration) {
      HEXLM_ASSIGN(options.calibration, read_saved_set(options.statistics));
    }
    plan.peak_memory_bytes = std::max(plan.peak_memory_bytes, calibration_memory(options, plan));
    runner = make_calibration_runner(options.threads);
    options.runner = runner.get();
    options.on_estimate = [](double seconds) {
      note(seconds < 90 ? fmt::format("estimate: {:.0f} s", seconds)
                        : fmt::format("estimate: {:.0f} minutes", seconds / 60));
    };
  }
  std::vector<BitChoice> choices;
  if (by_budget) {
    HEXLM_ASSIGN(choices, spend_bits(plan, options, arguments.number("target-bits")));
    HEXLM_ASSIGN(plan, plan_export(options));
    plan.peak_memory_bytes = std::max(plan.peak_memory_bytes, calibration_memory(options, plan));
  }
  for (const std::string& text : plan.notes) note("note: " + text);
  warn_of_chat_template(options.checkpoint);
  if (dry_run) {
    if (exists(options.package) && !options.replace)
      note(fmt::format("note: {} exists already: without --force the export will be refused",
                       options.package));
    print_plan(plan, options, format);
    return 0;
  }
  HEXLM_ASSIGN(const ExportResult result, export_package(options, plan, terminal_progress("export")));
  Report report = result_report(plan, options, result);
  if (arguments.has("prepack")) HEXLM_TRY(add_prepacked(arguments, options, report));
  if (by_budget) report.json["bit_choices"] = to_json(choices);
  if (options.calibration) report.json["calibration"] = to_json(*options.calibration);
  std::optional<Verification> verification;
  if (arguments.toggle("verify")) {
    HEXLM_ASSIGN(verification, verify_package(options.checkpoint, options.adapters, options.package,
                                              options.threads, options.rotate));
    report.json["verification"] = to_json(*verification);
  }
  print_result(report, options, result, verification, format);
  if (verification && !verification->warning().empty()) log_warning(verification->warning());
  if (!verification || verification->passed()) return 0;
  // The result above is complete: only the verdict is left to say.
  const Error error = verification->error();
  print_error(error, ErrorStyle::text);
  return static_cast<int>(error.code);
}

}  // namespace hexlm::tool
