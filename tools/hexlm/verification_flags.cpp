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
    make_image_max_pixels_flag(),
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

namespace {

/// --NAME-a and --NAME-b: what holds for one side of a comparison only.
void add_side_flags(std::vector<Flag>& flags) {
  constexpr std::string_view own = "(both sides' setting)";
  flags.push_back({"backend-a", 0, FlagKind::choice, "cpu|opencl|hexagon|qnn|onnxruntime", own,
                   "device of the reference", ""});
  flags.push_back({"backend-b", 0, FlagKind::choice, "cpu|opencl|hexagon|qnn|onnxruntime", own,
                   "device of the model", ""});
  flags.push_back({"precision-a", 0, FlagKind::choice, "low|normal|high", own, "of the reference", ""});
  flags.push_back({"precision-b", 0, FlagKind::choice, "low|normal|high", own, "of the model", ""});
  flags.push_back({"kv-cache-a", 0, FlagKind::choice, "f32|f16|int8", own, "of the reference", ""});
  flags.push_back({"kv-cache-b", 0, FlagKind::choice, "f32|f16|int8", own, "of the model", ""});
  flags.push_back({"threads-a", 0, FlagKind::integer, "N", own, "of the reference", "", false, 1, 1024});
  flags.push_back({"threads-b", 0, FlagKind::integer, "N", own, "of the model", "", false, 1, 1024});
  flags.push_back({"chunk-a", 0, FlagKind::integer, "N", own, "of the reference", "", false, 1, 1e6});
  flags.push_back({"chunk-b", 0, FlagKind::integer, "N", own, "of the model", "", false, 1, 1e6});
  flags.push_back({"adapter-a", 0, FlagKind::path, "DIR", own, "of the reference; repeatable", "", true});
  flags.push_back({"adapter-b", 0, FlagKind::path, "DIR", own, "of the model; repeatable", "", true});
  flags.push_back({"adapter-scale-a", 0, FlagKind::number, "X", own, "weight of --adapter-a; repeatable", "",
                   true, -1000, 1000});
  flags.push_back({"adapter-scale-b", 0, FlagKind::number, "X", own, "weight of --adapter-b; repeatable", "",
                   true, -1000, 1000});
}

}  // namespace

Verb compare_verb() {
  std::vector<Flag> flags = {
      {"text", 0, FlagKind::path, "FILE", "", "UTF-8 text to run (this or --ids)", ""},
      {"ids", 0, FlagKind::text, "IDS", "", "token ids: a JSON file, or a list such as 1,2,3", ""},
      {"tokens", 0, FlagKind::integer, "N", "2048", "only the first N tokens; 0 takes all", "", false, 0,
       1e9},
      {"window", 0, FlagKind::integer, "N", "512", "tokens per window, each on an empty cache",
       "HEXLM_WINDOW", false, 2, 1e9},
      {"no-layers", 0, FlagKind::toggle, "", "", "compare outputs only", ""},
      {"greedy", 0, FlagKind::integer, "N", "64", "tokens to generate on both; 0 for none", "", false, 0,
       1e6},
      {"max-perplexity-increase", 0, FlagKind::number, "X", "(any)", "exit with 7 above", ""},
      {"max-kl", 0, FlagKind::number, "X", "(any)", "exit with 7 when the mean KL is above", "", false, 0},
      {"min-top1", 0, FlagKind::number, "SHARE", "(any)", "exit with 7 when the top-1 agreement is below", "",
       false, 0, 1},
      {"min-top5", 0, FlagKind::number, "SHARE", "(any)", "exit with 7 when the top-5 agreement is below", "",
       false, 0, 1}};
  add_side_flags(flags);
  return {"compare",
          "Compare a model with a reference, at the output and node by node, and name the culprit.",
          {{"REFERENCE", "package or checkpoint folder that is right"},
           {"MODEL", "package or checkpoint folder to judge; the same folder for two settings of one model"}},
          join_flags(
              {flags, {make_report_flag(), make_format_flag("text|json|md|csv|jsonl")}, model_flag_group()}),
          {{"hexlm compare Qwen3-0.6B qwen3-w4 --text heldout.txt --max-perplexity-increase 0.3",
            "what quantization costs, and where"},
           {"hexlm compare qwen3-w4 qwen3-w4 --precision-a high --text heldout.txt",
            "one package at two precisions"},
           {"hexlm compare qwen3-w4 qwen3-w4 --adapter-b my-lora --text heldout.txt",
            "what an adapter changes, and where first"}}};
}

Verb bisect_verb() {
  return {
      "bisect",
      "Find which single setting breaks the output, between a good and a bad configuration.",
      {{"GOOD", "a JSON file, or model=DIR,quant=w8g64,…: keys of `export` and `eval`, and model"},
       {"BAD", "the same; what differs is varied one at a time"}},
      {{"task", 0, FlagKind::path, "FILE", "", "rows as for `eval`: measures the share of exact ones", ""},
       {"text", 0, FlagKind::path, "FILE", "", "measures the perplexity of this text instead", ""},
       {"score", 0, FlagKind::choice, "auto|json|text|choices", "auto", "as for `eval`", ""},
       {"limit", 0, FlagKind::integer, "N", "0", "only the first N rows, or tokens of the text; 0 takes all",
        "", false, 0, 1e9},
       {"threshold", 0, FlagKind::number, "X", "(half way)",
        "share below, or perplexity above which it is broken", ""},
       make_threads_flag(),
       make_format_flag("text|json|md|csv|jsonl"),
       {"quiet", 'q', FlagKind::toggle, "", "", "no progress and no notes on stderr", "HEXLM_QUIET"}},
      {{"hexlm bisect model=Qwen3-0.6B model=Qwen3-0.6B,quant=w4,precision=low --task orders.jsonl",
        "is it the codec or the precision?"},
       {"hexlm bisect good.json bad.json --text heldout.txt --limit 2000", "by perplexity, from files"}}};
}

}  // namespace hexlm::tool
