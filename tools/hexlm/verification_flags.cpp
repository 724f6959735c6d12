#include "hexlm/flag_groups.hpp"

namespace hexlm::tool {
namespace {

/// Decoding of evaluations is fixed: no variable, configuration file or generation_config.json changes it.
const std::vector<Flag> fixed_sampling_flags = {
    {"temperature", 0, FlagKind::number, "X", "0", "0 is greedy; the model's own setting is not used", "",
     false, 0},
    {"top-k", 0, FlagKind::integer, "N", "0", "with a temperature: the N best tokens; 0 is off", "", false, 0,
     2147483647},
    {"top-p", 0, FlagKind::number, "X", "1", "with a temperature: the nucleus", "", false, 0, 1},
    {"repetition-penalty", 0, FlagKind::number, "X", "1", "1 is off", "", false, 0},
    {"seed", 0, FlagKind::integer, "N", "0", "with a temperature: the random sequence", "", false, 0, 9e18},
};

const std::vector<Flag> prompt_flags = {
    {"max-new-tokens", 'n', FlagKind::integer, "N", "512", "longest answer", "", false, 1, 1e9},
    {"system", 0, FlagKind::text, "TEXT", "", "system message of rows that have none", "HEXLM_SYSTEM"},
    {"raw", 0, FlagKind::toggle, "", "", "continue the prompts as they are, without the chat template",
     "HEXLM_RAW"},
    make_chat_template_flag(),
    {"chat-template-kwargs", 0, FlagKind::text, "JSON", "",
     "more variables for the template, such as {\"enable_thinking\": false}", "HEXLM_CHAT_TEMPLATE_KWARGS"},
    {"stop", 0, FlagKind::text, "TEXT", "", "ends the answer, which does not contain it; repeatable", "",
     true},
};

}  // namespace

Verb eval_verb() {
  return {"eval",
          "Answer labelled prompts and score the answers: JSON fields, text, or choices by likelihood.",
          {{"MODEL", "package or Hugging Face checkpoint folder"}},
          join_flags({{{"task", 0, FlagKind::path, "FILE", "",
                        "rows (required): .jsonl {prompt, expected, image?, system?, choices?} or .csv", ""},
                       {"score", 0, FlagKind::choice, "auto|json|text|choices", "auto",
                        "auto: by what a row expects", ""},
                       {"limit", 0, FlagKind::integer, "N", "0", "only the first N rows; 0 takes all", "",
                        false, 0, 1e9},
                       {"against", 0, FlagKind::path, "RESULT.json", "",
                        "an earlier result of this task: paired test and the rows that changed", ""},
                       {"min-exact", 0, FlagKind::number, "SHARE", "0",
                        "exit with 7 when fewer rows are right", "", false, 0, 1},
                       {"max-degenerate", 0, FlagKind::integer, "N", "(any)",
                        "exit with 7 when more answers are degenerate", "", false, 0, 1e9}},
                      prompt_flags,
                      fixed_sampling_flags,
                      {make_report_flag(), make_format_flag("text|json|md|csv|jsonl")},
                      model_flag_group()}),
          {{"hexlm eval qwen3-w4 --task orders.jsonl", "parse rate, exact answers, fields"},
           {"hexlm eval qwen3-w4 --task orders.jsonl --against float.json --min-exact 0.95",
            "what changed since an earlier result, and a verdict"},
           {"hexlm eval qwen3-w4 --task mmlu/anatomy.csv --raw", "multiple choice by likelihood"}}};
}

}  // namespace hexlm::tool
