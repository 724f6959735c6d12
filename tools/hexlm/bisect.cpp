#include "evaluation/bisect.hpp"

#include <cmath>
#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "evaluation/eval_report.hpp"
#include "evaluation/perplexity.hpp"
#include "hexlm/configuration.hpp"
#include "hexlm/evaluation_run.hpp"
#include "hexlm/verbs.hpp"

namespace hexlm::tool {
namespace {

/// Runs configurations on the fixed input: the share of exact rows, or for a text −log of the perplexity.
class BisectInput {
 public:
  static Result<BisectInput> create(const Arguments& arguments) {
    HEXLM_ASSIGN(PackageCache cache, PackageCache::create());
    BisectInput input(std::move(cache));
    input.threads_ = arguments.threads();
    input.defaults_["threads"] = {arguments.text("threads")};
    const bool task = arguments.has("task");
    if (task == arguments.has("text"))
      return fail(ErrorCode::usage, "bisect needs a fixed input: either --task or --text");
    if (task) {
      HEXLM_ASSIGN(input.task_, read_task_flags(arguments));
    } else {
      HEXLM_ASSIGN(input.text_, read_file(arguments.text("text")));
      input.limit_ = static_cast<size_t>(arguments.integer("limit"));
    }
    return input;
  }

  bool scores_text() const { return !task_; }

  Result<double> measure(const Configuration& configuration) {
    HEXLM_ASSIGN(const std::string folder, cache_.folder_for(configuration, threads_));
    HEXLM_ASSIGN(Arguments arguments, arguments_of(configuration, folder, defaults_));
    HEXLM_ASSIGN(const Opened opened, open_session(arguments));
    if (!task_) return measure_text(opened);
    HEXLM_ASSIGN(const EvalResult result, evaluate_task(arguments, opened, *task_, nullptr));
    return summarize(*task_, result).exact_rate().value;
  }

 private:
  explicit BisectInput(PackageCache cache) : cache_(std::move(cache)) {}

  Result<double> measure_text(const Opened& opened) const {
    if (opened.model->tokenizer() == nullptr)
      return fail(ErrorCode::bad_input, fmt::format("{} has no tokenizer.json", opened.model->folder()));
    HEXLM_ASSIGN(std::vector<int32_t> ids, opened.model->tokenizer()->encode(text_));
    if (limit_ > 0 && ids.size() > limit_) ids.resize(limit_);
    constexpr int64_t window = 512;
    const auto result =
        perplexity(*opened.session, ids, std::min(window, opened.session->capacity()), nullptr);
    // Likelihoods that are no numbers are as bad as it gets, which is what is being looked for.
    if (!result && result.error().code == ErrorCode::runtime) return -1e9;
    if (!result) return tl::unexpected<Error>(result.error());
    return -result->nll_mean;
  }

  PackageCache cache_;
  FlagValues defaults_;
  int threads_ = 1;
  std::optional<Task> task_;
  std::string text_;
  size_t limit_ = 0;
};

/// A score as people know it: a share, or a perplexity.
double shown(double score, bool text) { return text ? std::exp(-score) : score; }

std::string score_text_of(double score, bool text) {
  return text ? fmt::format("{:.3f}", shown(score, text)) : fmt::format("{:.1f} %", 100 * score);
}

Json culprits_json(const BisectResult& result) {
  Json culprits = Json::array();
  for (const std::string& name : result.culprits()) culprits.push_back(setting_key(name));
  return culprits;
}

Json variables_json(const BisectResult& result, bool text) {
  Json variables = Json::array();
  for (const BisectVariable& variable : result.variables) {
    variables.push_back(
        {{"name", setting_key(variable.name)},
         {"good", variable.good},
         {"bad", variable.bad},
         {"alone", shown(variable.alone, text)},
         {"breaks", variable.breaks},
         {"reverted", variable.reverted ? Json(shown(*variable.reverted, text)) : Json(nullptr)}});
  }
  return variables;
}

std::string verdict_text(const BisectResult& result) {
  const std::vector<std::string> culprits = result.culprits();
  if (!culprits.empty()) return fmt::format("breaks the output by itself: {}\n", fmt::join(culprits, ", "));
  return fmt::format(
      "no single change breaks the output; changed one after the other it broke with {} (after {})\n",
      result.together.back(), fmt::join(result.together.begin(), result.together.end() - 1, ", "));
}

Report report_of(const BisectResult& result, bool text) {
  Report report;
  report.json = {{"metric", text ? "perplexity" : "exact"},
                 {"good", shown(result.good, text)},
                 {"bad", shown(result.bad, text)},
                 {"threshold", shown(result.threshold, text)},
                 {"culprits", culprits_json(result)},
                 {"variables", variables_json(result, text)},
                 {"together", result.together},
                 {"measured", result.measured}};
  report.rows_key = "variables";
  report.summary = fmt::format("{}: good {}, bad {}, broken {} {}\n", text ? "perplexity" : "exact rows",
                               score_text_of(result.good, text), score_text_of(result.bad, text),
                               text ? "above" : "below", score_text_of(result.threshold, text));
  report.table.columns = {{"variable"}, {"good"}, {"bad"}, {"changed alone", true}, {"put right alone", true},
                          {""}};
  for (const BisectVariable& variable : result.variables) {
    report.table.rows.push_back(
        {setting_key(variable.name), variable.good.empty() ? "(default)" : variable.good,
         variable.bad.empty() ? "(default)" : variable.bad, score_text_of(variable.alone, text),
         variable.reverted ? score_text_of(*variable.reverted, text) : "", variable.breaks ? "breaks" : ""});
  }
  return report;
}

}  // namespace

Result<int> run_bisect(Arguments& arguments) {
  HEXLM_ASSIGN(const Configuration good, read_configuration(arguments.positional(0)));
  HEXLM_ASSIGN(const Configuration bad, read_configuration(arguments.positional(1)));
  HEXLM_ASSIGN(BisectInput input, BisectInput::create(arguments));
  const bool text = input.scores_text();
  std::optional<double> threshold;
  if (arguments.has("threshold")) {
    threshold = arguments.number("threshold");
    if (text) threshold = -std::log(*threshold);
  }
  const auto measure = [&](const Configuration& configuration) -> Result<double> {
    HEXLM_ASSIGN(const double score, input.measure(configuration));
    std::string settings;
    for (const auto& [key, value] : configuration) settings += fmt::format(" {}={}", setting_key(key), value);
    note(fmt::format("{}:{}", score_text_of(score, text), settings));
    return score;
  };
  HEXLM_ASSIGN(const BisectResult result, bisect(good, bad, threshold, measure));
  const Format format = format_of(arguments);
  print(report_of(result, text), format);
  if (format == Format::text) print("\n" + verdict_text(result));
  return 0;
}

}  // namespace hexlm::tool
