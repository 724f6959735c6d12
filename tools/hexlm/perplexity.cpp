#include "evaluation/perplexity.hpp"

#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "hexlm/common.hpp"
#include "hexlm/verbs.hpp"

namespace hexlm::tool {

Result<int> run_perplexity(Arguments& arguments) {
  HEXLM_TRY(require(arguments, "text"));
  HEXLM_ASSIGN(const std::string text, read_file(arguments.text("text")));
  HEXLM_ASSIGN(const Opened opened, open_session(arguments));
  if (opened.model->tokenizer() == nullptr) {
    return fail(ErrorCode::bad_input, fmt::format("{} has no tokenizer.json", opened.model->folder()),
                "copy the tokenizer of the model's family into the folder");
  }
  HEXLM_ASSIGN(const std::vector<int32_t> ids, opened.model->tokenizer()->encode(text));
  HEXLM_ASSIGN(const PerplexityResult result, perplexity(*opened.session, ids, arguments.integer("window"),
                                                         terminal_progress("perplexity")));
  Report report;
  report.json = {{"perplexity", result.perplexity}, {"nll_mean", result.nll_mean},
                 {"tokens", result.tokens},         {"scored", result.scored},
                 {"seconds", result.seconds},       {"placement", opened.session->placement()}};
  report.table.columns = {{"perplexity", true}, {"tokens", true}, {"scored", true}, {"seconds", true}};
  report.table.rows = {{fmt::format("{:.4f}", result.perplexity), std::to_string(result.tokens),
                        std::to_string(result.scored), fmt::format("{:.1f}", result.seconds)}};
  print(report, format_of(arguments));
  print_placement(*opened.session);
  return 0;
}

}  // namespace hexlm::tool
