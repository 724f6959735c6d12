#include "evaluation/perplexity.hpp"

#include <cmath>
#include <fmt/format.h>
#include <map>

#include "base/atomic_file.hpp"
#include "evaluation/scripts.hpp"
#include "hexlm/common.hpp"
#include "hexlm/verbs.hpp"

namespace hexlm::tool {
namespace {

struct ScriptScore {
  int64_t scored = 0;
  double nll = 0;
};
using ScriptScores = std::map<TextScript, ScriptScore>;

int64_t count_words(const std::string& text) {
  int64_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    if (!space && !inside) ++words;
    inside = !space;
  }
  return words;
}

Json scripts_json(const ScriptScores& scores) {
  Json json = Json::object();
  for (const auto& [script, score] : scores) {
    const double mean = score.nll / static_cast<double>(score.scored);
    json[std::string(to_string(script))] = {
        {"scored", score.scored}, {"nll_mean", mean}, {"perplexity", std::exp(mean)}};
  }
  return json;
}

Table table_of(const PerplexityResult& result, double perplexity, const ScriptScores& scores) {
  Table table;
  table.columns = {{"text"}, {"perplexity", true}, {"tokens", true}, {"scored", true}, {"seconds", true}};
  table.rows = {{"all", fmt::format("{:.4f}", perplexity), std::to_string(result.tokens),
                 std::to_string(result.scored), fmt::format("{:.1f}", result.seconds)}};
  for (const auto& [script, score] : scores) {
    table.rows.push_back({fmt::format("  {}", to_string(script)),
                          fmt::format("{:.4f}", std::exp(score.nll / static_cast<double>(score.scored))), "",
                          std::to_string(score.scored), ""});
  }
  return table;
}

}  // namespace

Result<int> run_perplexity(Arguments& arguments) {
  HEXLM_TRY(require(arguments, "text"));
  HEXLM_ASSIGN(const std::string text, read_file(arguments.text("text")));
  HEXLM_ASSIGN(const Opened opened, open_session(arguments));
  if (opened.model->tokenizer() == nullptr) {
    return fail(ErrorCode::bad_input, fmt::format("{} has no tokenizer.json", opened.model->folder()),
                "copy the tokenizer of the model's family into the folder");
  }
  HEXLM_ASSIGN(const std::vector<int32_t> ids, opened.model->tokenizer()->encode(text));
  const std::vector<TextScript> scripts = token_scripts(*opened.model->tokenizer(), ids);
  ScriptScores scores;
  int64_t scored_bytes = 0;
  PerplexityOptions options;
  options.window = arguments.integer("window");
  options.stride = arguments.integer("stride");
  const std::string protocol = arguments.text("protocol");
  if (protocol == "second-half") options.protocol = PerplexityProtocol::second_half;
  options.on_token = [&](int64_t index, double nll) {
    ScriptScore& score = scores[scripts[static_cast<size_t>(index)]];
    ++score.scored;
    score.nll += nll;
    scored_bytes +=
        static_cast<int64_t>(opened.model->tokenizer()->token_bytes(ids[static_cast<size_t>(index)]).size());
  };
  HEXLM_ASSIGN(const PerplexityResult result,
               perplexity(*opened.session, ids, options, terminal_progress("perplexity")));
  const int64_t words = count_words(text);
  double shown = result.perplexity;
  if (protocol == "words")
    shown = std::exp(result.nll_sum / static_cast<double>(std::max<int64_t>(words, 1)));
  Report report;
  report.json = {{"perplexity", shown},
                 {"protocol", protocol},
                 {"window", options.window},
                 {"stride", options.stride == 0 ? options.window : options.stride},
                 {"nll_mean", result.nll_mean},
                 {"tokens", result.tokens},
                 {"scored", result.scored},
                 {"words", words},
                 {"bytes", scored_bytes},
                 {"bits_per_byte", result.nll_sum / std::log(2.0) / static_cast<double>(scored_bytes)},
                 {"scripts", scripts_json(scores)},
                 {"seconds", result.seconds},
                 {"placement", opened.session->placement()}};
  report.table = table_of(result, shown, scores);
  print(report, format_of(arguments));
  print_placement(*opened.session);
  return 0;
}

}  // namespace hexlm::tool
