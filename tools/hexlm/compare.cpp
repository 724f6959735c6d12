#include "evaluation/compare.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "evaluation/compare_report.hpp"
#include "hexlm/common.hpp"
#include "hexlm/report_page.hpp"
#include "hexlm/sides.hpp"
#include "hexlm/verbs.hpp"
#include "quantization/resources.hpp"

namespace hexlm::tool {
namespace {

/// Rows of the table: the most suspicious nodes. All are in the JSON result.
constexpr size_t shown_culprits = 10;

Result<std::vector<int32_t>> tokens_of(const Arguments& arguments, const Model& model) {
  std::vector<int32_t> ids;
  if (arguments.has("ids")) {
    HEXLM_ASSIGN(ids, read_ids(arguments.text("ids")));
  } else {
    HEXLM_TRY(require(arguments, "text"));
    HEXLM_ASSIGN(const std::string text, read_file(arguments.text("text")));
    if (model.tokenizer() == nullptr) {
      return fail(ErrorCode::bad_input, fmt::format("{} has no tokenizer.json", model.folder()),
                  "give token ids with --ids");
    }
    HEXLM_ASSIGN(ids, model.tokenizer()->encode(text));
  }
  const auto limit = static_cast<size_t>(arguments.integer("tokens"));
  if (limit > 0 && ids.size() > limit) ids.resize(limit);
  return ids;
}

CompareLimits limits_of(const Arguments& arguments) {
  const auto limit = [&](const char* flag) {
    return arguments.has(flag) ? std::optional<double>(arguments.number(flag)) : std::nullopt;
  };
  return {limit("max-perplexity-increase"), limit("max-kl"), limit("min-top1"), limit("min-top5")};
}

std::string decibels(double value) {
  if (std::isinf(value)) return value > 0 ? "exact" : "no numbers";
  return fmt::format("{:.1f}", value);
}

Table culprit_table(const LayerComparison& layers) {
  Table table;
  table.columns = {{"node"},         {"op"},        {"SNR dB", true},     {"explained", true},
                   {"cosine", true}, {"max", true}, {"built up dB", true}};
  for (const size_t index : layers.culprits()) {
    if (table.rows.size() == shown_culprits) break;
    const NodeDifference& node = layers.nodes()[index];
    table.rows.push_back({node.name, node.op, decibels(node.local.snr_db()),
                          fmt::format("{:.1f}", node.expected_snr_db),
                          fmt::format("{:.6f}", node.local.cosine()),
                          fmt::format("{:.3g}", node.local.max_abs()), decibels(node.global.snr_db())});
  }
  return table;
}

std::string greedy_text(const Json& greedy) {
  if (greedy.is_null()) return "";
  if (greedy["position"].is_null())
    return fmt::format("greedy text: the same {} tokens\n", greedy["compared"].get<int64_t>());
  return fmt::format("greedy text: parts at token {} of {} (\"{}\" became \"{}\")\n",
                     greedy["position"].get<int64_t>(), greedy["compared"].get<int64_t>(),
                     greedy["reference_text"].get<std::string>(), greedy["text"].get<std::string>());
}

std::string summary_text(const CompareResult& result, const Sides& sides, const Json& json) {
  const OutputDifference& outputs = result.outputs;
  std::string text = fmt::format("reference: {}\nmodel:     {}\n", sides.description_a, sides.description_b);
  if (outputs.scored() > 0) {
    text += fmt::format("perplexity {:.4f} → {:.4f} ({:+.4f}): {}\n", outputs.reference_perplexity(),
                        outputs.perplexity(), outputs.perplexity() - outputs.reference_perplexity(),
                        judge_increase(outputs));
  }
  text +=
      fmt::format("KL mean {:.3g}, 99th percentile {:.3g}, max {:.3g} nats; top-1 {:.2f} %, top-5 {:.2f} %\n",
                  outputs.kl_mean(), json["kl_p99"].is_null() ? NAN : json["kl_p99"].get<double>(),
                  outputs.kl_max(), 100 * outputs.top1_agreement(), 100 * outputs.top5_agreement());
  text += greedy_text(json["greedy"]);
  if (!result.layers) return text;
  const auto first = result.layers->first_divergence();
  text += first ? fmt::format("first divergence: {}\n", result.layers->nodes()[*first].name)
                : "first divergence: none, every node's own error is what its weights explain\n";
  return text + "\n";
}

std::optional<Error> missed_limit(const std::vector<LimitCheck>& checks) {
  const auto missed =
      std::find_if(checks.begin(), checks.end(), [](const auto& check) { return !check.passed; });
  if (missed == checks.end()) return std::nullopt;
  if (missed->name == "finite")
    return Error{ErrorCode::verification, "the model's outputs are not all numbers", ""};
  return Error{ErrorCode::verification,
               fmt::format("{} is {:.6g}, the limit {:.6g}", missed->name, missed->value, missed->limit), ""};
}

}  // namespace

Result<int> run_compare(Arguments& arguments) {
  HEXLM_ASSIGN(const Sides sides, open_sides(arguments));
  HEXLM_ASSIGN(const std::vector<int32_t> tokens, tokens_of(arguments, sides.a->model()));
  CompareOptions options;
  options.window = arguments.integer("window");
  options.layers = !arguments.toggle("no-layers");
  options.greedy_tokens = arguments.integer("greedy");
  options.threads = arguments.threads();
  HEXLM_ASSIGN(const CompareResult result,
               compare(*sides.a, *sides.b, tokens, options, terminal_progress("compare")));
  const std::vector<LimitCheck> checks = check_limits(result, limits_of(arguments));
  Report report;
  report.json = compare_json(result, checks, sides.a->model().tokenizer());
  report.json["reference"] = sides.description_a;
  report.json["model"] = sides.description_b;
  report.json["weight_bytes_reference"] = sides.a->model().weight_bytes();
  report.json["weight_bytes"] = sides.b->model().weight_bytes();
  report.json["peak_memory_bytes"] = peak_memory_bytes();
  report.rows_key = "layers";
  report.summary = summary_text(result, sides, report.json);
  if (result.layers) report.table = culprit_table(*result.layers);
  HEXLM_TRY(write_report_page(
      arguments, "compare",
      fmt::format("{} against {}", sides.b->model().folder(), sides.a->model().folder()), report.json));
  print(report, format_of(arguments));
  print_placement(*sides.b);
  const std::optional<Error> missed = missed_limit(checks);
  if (!missed) return 0;
  print_error(*missed, ErrorStyle::text);
  return static_cast<int>(missed->code);
}

}  // namespace hexlm::tool
