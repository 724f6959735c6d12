#include <fmt/format.h>

#include "evaluation/eval_report.hpp"
#include "hexlm/common.hpp"
#include "hexlm/evaluation_run.hpp"
#include "hexlm/report_page.hpp"
#include "hexlm/verbs.hpp"

namespace hexlm::tool {
namespace {

std::string interval_text(const Rate& rate) {
  return fmt::format("{:.1f} – {:.1f} %", 100 * rate.low, 100 * rate.high);
}

Table summary_table(const EvalSummary& summary) {
  Table table;
  table.columns = {{"measure"}, {"count", true}, {"of", true}, {"share", true}, {"95 % interval"}};
  const auto add = [&table](const char* name, const Rate& rate) {
    if (rate.total == 0) return;
    table.rows.push_back({name, std::to_string(rate.count), std::to_string(rate.total),
                          fmt::format("{:.1f} %", 100 * rate.value), interval_text(rate)});
  };
  add("exact", summary.exact_rate());
  add("parsed", summary.parse_rate());
  const FieldCounts& fields = summary.json.total;
  add("fields right, of those answered", wilson(fields.correct, fields.expected - fields.missing));
  add("fields right, of all expected", wilson(fields.correct, fields.expected));
  for (const auto& [path, counts] : summary.json.fields)
    add(fmt::format("  {}", path).c_str(), wilson(counts.correct, counts.expected));
  add("objects found", wilson(summary.json.objects_matched, summary.json.objects_expected));
  add("objects right", wilson(summary.json.objects_matched, summary.json.objects_answered));
  add("texts equal but for case and punctuation", wilson(summary.text_normalized, summary.text_rows));
  add("texts that contain the expected", wilson(summary.text_contains, summary.text_rows));
  add("choices right", wilson(summary.chosen_right, summary.choice_rows));
  add("choices right, likelihood per byte", wilson(summary.chosen_right_per_byte, summary.choice_rows));
  add("degenerate", wilson(summary.degenerate, summary.rows));
  return table;
}

/// The rows that a reader looks at first; all are in the JSON result.
constexpr size_t shown_failures = 5;

std::string failures_text(const Json& result) {
  const Json& failures = result["failures"];
  std::string text;
  for (size_t i = 0; i < std::min(failures.size(), shown_failures); ++i) {
    text += fmt::format("line {}: {}\n  expected {}\n  answered {}\n", failures[i]["line"].get<size_t>(),
                        failures[i]["reason"].get<std::string>(), failures[i]["expected"].dump(),
                        failures[i]["answer"].dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  if (failures.size() > shown_failures)
    text += fmt::format("… {} more in the result of --format json\n", failures.size() - shown_failures);
  return text;
}

std::string paired_text(const PairedResult& paired) {
  std::string text = fmt::format(
      "\nagainst the earlier result: {} rows, {} now right, {} now wrong, p = {:.3g} ({})\n", paired.pairs,
      paired.gained, paired.lost, paired.p_value, paired.p_value < 0.05 ? "a difference" : "within chance");
  for (const ChangedRow& row : paired.changed)
    text += fmt::format("  line {} {}\n", row.line, row.was_correct ? "now wrong" : "now right");
  return text;
}

/// Thresholds that were missed; the result itself is complete.
std::optional<Error> verdict(const Arguments& arguments, const EvalSummary& summary) {
  const double least = arguments.number("min-exact");
  if (summary.exact_rate().value < least) {
    return Error{ErrorCode::verification,
                 fmt::format("{} of {} rows are exact ({:.4f}), --min-exact is {}", summary.correct,
                             summary.rows, summary.exact_rate().value, least),
                 ""};
  }
  if (arguments.has("max-degenerate") && summary.degenerate > arguments.integer("max-degenerate")) {
    return Error{ErrorCode::verification,
                 fmt::format("{} answers are degenerate, --max-degenerate is {}", summary.degenerate,
                             arguments.integer("max-degenerate")),
                 ""};
  }
  return std::nullopt;
}

}  // namespace

Result<int> run_eval(Arguments& arguments) {
  HEXLM_TRY(require(arguments, "task"));
  HEXLM_ASSIGN(const Task task, read_task_flags(arguments));
  std::optional<Json> earlier;
  if (arguments.has("against")) {
    HEXLM_ASSIGN(earlier, read_json(arguments.text("against")));
  }
  HEXLM_ASSIGN(const Opened opened, open_session(arguments));
  HEXLM_ASSIGN(const EvalResult result, evaluate_task(arguments, opened, task, terminal_progress("eval")));
  const EvalSummary summary = summarize(task, result);
  Report report;
  report.json = eval_json(task, result, summary);
  report.rows_key = "results";
  report.table = summary_table(summary);
  std::optional<PairedResult> paired;
  if (earlier) {
    HEXLM_ASSIGN(paired, compare_with(*earlier, arguments.text("against"), task, result));
    report.json["against"] = to_json(*paired);
  }
  const std::optional<Error> missed = verdict(arguments, summary);
  report.json["verdict"] = missed ? "fail" : "pass";
  report.json["model"] = opened.model->folder();
  report.json["placement"] = opened.session->placement();
  HEXLM_TRY(write_report_page(arguments, "eval", fmt::format("{}: {}", opened.model->folder(), task.path),
                              report.json));
  const Format output = format_of(arguments);
  print(report, output);
  if (output == Format::text) {
    print("\n" + failures_text(report.json));
    if (result.same_answer) print("warning: " + result.same_answer.detail + "\n");
    if (paired) print(paired_text(*paired));
    print(
        fmt::format("{} prompt tokens ({} of them shared with earlier prompts), {} answer tokens, {:.1f} s\n",
                    result.prompt_tokens, result.reused_tokens, result.answer_tokens, result.seconds));
  }
  print_placement(*opened.session);
  if (!missed) return 0;
  print_error(*missed, ErrorStyle::text);
  return static_cast<int>(missed->code);
}

}  // namespace hexlm::tool
