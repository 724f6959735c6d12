#include "hexlm/flags.hpp"

#include <algorithm>
#include <initializer_list>

#include "hexlm/flag_groups.hpp"

namespace hexlm::tool {
namespace {

constexpr Flag config_flag = {"config",      0,  FlagKind::path,
                              "FILE",        "", "JSON file of settings (keys as the flags, with _ for -)",
                              "HEXLM_CONFIG"};
constexpr Flag quiet_flag = {
    "quiet", 'q', FlagKind::toggle, "", "", "no progress and no notes on stderr", "HEXLM_QUIET"};
constexpr Flag threads_flag = {"threads",
                               't',
                               FlagKind::integer,
                               "N",
                               "auto",
                               "auto takes the big cores and stays on them; 0 takes every processor",
                               "HEXLM_THREADS",
                               false,
                               0,
                               1024,
                               "auto"};
constexpr Flag kv_cache_flag = {"kv-cache",
                                0,
                                FlagKind::choice,
                                "f32|f16|int8",
                                "(f16; f32 at precision high)",
                                "how keys and values are kept; int8 has a scale for each head of a token",
                                "HEXLM_KV_CACHE"};
constexpr Flag no_verify_flag = {"no-verify",
                                 0,
                                 FlagKind::toggle,
                                 "",
                                 "",
                                 "skip the checksums (package) or the NaN scan (checkpoint)",
                                 "HEXLM_NO_VERIFY"};
constexpr Flag force_flag = {"force", 0, FlagKind::toggle, "", "", "replace an existing output folder", ""};
constexpr Flag output_folder_flag = {"output", 'o', FlagKind::path, "DIR", "", "folder to create (required)",
                                     ""};

constexpr Flag format_flag(std::string_view choices) {
  return {"format",      0, FlagKind::choice, choices, "text", "how the result is printed on stdout",
          "HEXLM_FORMAT"};
}

constexpr Flag ids_flag(std::string_view help) { return {"ids", 0, FlagKind::text, "IDS", "", help, ""}; }

constexpr Flag chat_template_flag = {
    "chat-template",      0,
    FlagKind::path,       "FILE",
    "(the model's)",      "Jinja chat template to use instead of the model's",
    "HEXLM_CHAT_TEMPLATE"};

/// Both repeatable; read by read_adapters.
const std::vector<Flag> adapter_flags = {
    {"adapter", 0, FlagKind::path, "DIR", "", "LoRA adapter folder (PEFT); repeatable", "HEXLM_ADAPTER",
     true},
    {"adapter-scale", 0, FlagKind::number, "X", "1", "weight of the adapter; once for all, or once for each",
     "HEXLM_ADAPTER_SCALE", true, -1000, 1000},
};

/// What every verb that runs a model understands.
const std::vector<Flag> model_flags = {
    {"backend", 'b', FlagKind::choice, "cpu|opencl|hexagon|qnn|onnxruntime", "cpu",
     "device that runs the model", "HEXLM_BACKEND"},
    {"fallback", 0, FlagKind::toggle, "", "",
     "let other devices run the nodes that the backend lacks (the cpu lacks none)", "HEXLM_FALLBACK"},
    threads_flag,
    {"precision", 0, FlagKind::choice, "low|normal|high", "normal",
     "high: float activations; normal: int8 activations for integer weights", "HEXLM_PRECISION"},
    kv_cache_flag,
    {"memory", 0, FlagKind::choice, "low|normal|high", "low",
     "low keeps weights as stored; the cpu backend offers no other", "HEXLM_MEMORY"},
    {"context", 'c', FlagKind::integer, "N", "0", "tokens the cache can hold; 0 takes the model's maximum",
     "HEXLM_CONTEXT", false, 0, 1e9},
    {"chunk", 0, FlagKind::integer, "N", "512", "tokens per prefill step", "HEXLM_CHUNK", false, 1, 1e6},
    adapter_flags[0],
    adapter_flags[1],
    no_verify_flag,
    config_flag,
    quiet_flag,
};

constexpr Flag image_max_pixels_flag = {"image-max-pixels",
                                        0,
                                        FlagKind::integer,
                                        "N",
                                        "0",
                                        "scale images to at most N pixels; 0 takes the model's limit",
                                        "HEXLM_IMAGE_MAX_PIXELS",
                                        false,
                                        0,
                                        1e12};

constexpr Flag image_flag(std::string_view help) {
  return {"image", 0, FlagKind::path, "FILE", "", help, "", true};
}

const std::vector<Flag> sampling_flags = {
    {"temperature", 0, FlagKind::number, "X", "(the model's)", "0 is greedy", "HEXLM_TEMPERATURE", false, 0},
    {"top-k", 0, FlagKind::integer, "N", "(the model's)", "draw from the N best tokens; 0 is off",
     "HEXLM_TOP_K", false, 0, 2147483647},
    {"top-p", 0, FlagKind::number, "X", "(the model's)",
     "draw from the fewest tokens with probability X together", "HEXLM_TOP_P", false, 0, 1},
    {"min-p", 0, FlagKind::number, "X", "(the model's)",
     "drop tokens below X times the best one's probability", "HEXLM_MIN_P", false, 0, 1},
    {"repetition-penalty", 0, FlagKind::number, "X", "(the model's)",
     "divides the logits of tokens in prompt and answer; 1 is off", "HEXLM_REPETITION_PENALTY", false, 0},
    {"presence-penalty", 0, FlagKind::number, "X", "(the model's)",
     "subtracted once from tokens of the answer; 0 is off", "HEXLM_PRESENCE_PENALTY", false, -2, 2},
    {"frequency-penalty", 0, FlagKind::number, "X", "(the model's)",
     "subtracted for each time a token is in the answer; 0 is off", "HEXLM_FREQUENCY_PENALTY", false, -2, 2},
    {"seed", 0, FlagKind::integer, "N", "0", "the same seed gives the same answer", "HEXLM_SEED", false, 0,
     9e18},
};

std::vector<Flag> join(std::initializer_list<std::vector<Flag>> groups) {
  std::vector<Flag> all;
  for (const std::vector<Flag>& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

const Positional model_positional = {"MODEL", "package or Hugging Face checkpoint folder, or .gguf file"};

Verb export_verb() {
  return {
      "export",
      "Quantize a checkpoint and write it as a package.",
      {{"CHECKPOINT", "Hugging Face checkpoint folder, or .gguf file"}},
      join({{output_folder_flag,
             {"quant", 0, FlagKind::text, "SPEC", "w4g64",
              "codec of the linears: f32, f16, bf16, w8, w4, w4g64, w8g128, …; suffix a: asymmetric",
              "HEXLM_QUANT"},
             {"lm-head", 0, FlagKind::text, "SPEC", "(see docs/quantization.md)", "codec of the output head",
              "HEXLM_LM_HEAD"},
             {"embedding", 0, FlagKind::text, "SPEC", "(see docs/quantization.md)",
              "codec of the token table", "HEXLM_EMBEDDING"},
             {"vision", 0, FlagKind::text, "SPEC", "w8g128", "codec of the vision tower's linears",
              "HEXLM_VISION"},
             {"method", 0, FlagKind::choice, "rtn|mse|hqq|awq|gptq|best", "rtn",
              "how codes are chosen; awq, gptq and best look at activations and need --calibration",
              "HEXLM_METHOD"},
             {"vision-method", 0, FlagKind::choice, "rtn|mse|hqq|awq|gptq|best", "",
              "the same for the vision tower; default: as --method, but mse without calibration images",
              "HEXLM_VISION_METHOD"},
             {"rotate", 0, FlagKind::toggle, "", "",
              "turn the residual stream by a Hadamard matrix first, which spreads outliers", "HEXLM_ROTATE"},
             {"calibration", 0, FlagKind::path, "FILE", "",
              "text, .json or .jsonl (text, Alpaca or chat messages, with images) to calibrate with; "
              "repeatable",
              "HEXLM_CALIBRATION", true},
             {"calibration-samples", 0, FlagKind::integer, "N", "128", "calibration samples",
              "HEXLM_CALIBRATION_SAMPLES", false, 1, 65536},
             {"calibration-tokens", 0, FlagKind::integer, "N", "512", "tokens of a sample",
              "HEXLM_CALIBRATION_TOKENS", false, 2, 65536},
             {"seed", 0, FlagKind::integer, "N", "0", "chooses the calibration samples", "HEXLM_SEED", false,
              0, 1e9},
             {"recipe", 0, FlagKind::path, "FILE", "",
              "JSON rules that give weights codecs by name; see docs/quantization.md", "HEXLM_RECIPE"},
             {"target-bits", 0, FlagKind::number, "X", "",
              "bits a weight of the linears, scales included: measures which need more (needs --calibration)",
              "HEXLM_TARGET_BITS", false, 2, 16},
             {"work", 0, FlagKind::path, "DIR", "(PACKAGE.work)",
              "keeps finished layers, so that an interrupted export goes on; removed at the end",
              "HEXLM_WORK"},
             {"dry-run", 0, FlagKind::toggle, "", "", "print the plan and its sizes; write nothing", ""},
             {"prepack", 0, FlagKind::choice, "cpu-x86-vnni|cpu-arm-dotprod|cpu-arm-i8mm", "(no)",
              "also write the linears as that processor's kernels read them: opening is then a memory map",
              "HEXLM_PREPACK"},
             {"verify", 0, FlagKind::toggle, "", "",
              "re-open the package, check it and compare 64 tokens of logits with the checkpoint",
              "HEXLM_VERIFY"},
             force_flag,
             threads_flag,
             format_flag("text|json|md|csv"),
             config_flag,
             quiet_flag},
            adapter_flags}),
      {{"hexlm export Qwen3-0.6B -o qwen3-w4", "4-bit weights with the default codecs"},
       {"hexlm export Qwen3-0.6B -o qwen3-w4 --quant w4g64 --dry-run",
        "what would be written, and how large"},
       {"hexlm export Qwen3-0.6B -o qwen3-w8 --quant w8g128 --verify", "8 bits, compared with the source"}}};
}

Verb run_verb() {
  return {
      "run",
      "Answer a prompt; without one, on a terminal, chat.",
      {model_positional, {"PROMPT", "text of the user's turn", false}},
      join({{{"prompt", 'p', FlagKind::text, "TEXT", "", "the prompt; - reads it from stdin", ""},
             ids_flag("token ids instead of a prompt: a JSON file, or a list such as 1,2,3"),
             image_flag("JPEG, PNG or WebP before the prompt, which may also name images at their places: "
                        "<img>FILE</img>; repeatable"),
             image_max_pixels_flag,
             {"no-inline-images", 0, FlagKind::toggle, "", "", "take <img>FILE</img> in a prompt as text",
              "HEXLM_NO_INLINE_IMAGES"},
             {"max-new-tokens", 'n', FlagKind::integer, "N", "512", "longest answer", "HEXLM_MAX_NEW_TOKENS",
              false, 0, 1e9},
             {"system", 0, FlagKind::text, "TEXT", "", "system message", "HEXLM_SYSTEM"},
             {"raw", 0, FlagKind::toggle, "", "", "continue the prompt as it is, without the chat template",
              "HEXLM_RAW"},
             chat_template_flag,
             {"chat-template-kwargs", 0, FlagKind::text, "JSON", "",
              "more variables for the template, such as {\"enable_thinking\": false}",
              "HEXLM_CHAT_TEMPLATE_KWARGS"},
             {"stop", 0, FlagKind::text, "TEXT", "", "ends the answer, which does not contain it; repeatable",
              "HEXLM_STOP", true},
             {"ignore-eos", 0, FlagKind::toggle, "", "", "go on after an end token", "HEXLM_IGNORE_EOS"}},
            sampling_flags,
            {{"verbose", 'v', FlagKind::toggle, "", "", "timings on stderr", "HEXLM_VERBOSE"},
             format_flag("text|json")},
            model_flags}),
      {{"hexlm run qwen3-w4 \"Why is the sky blue?\"", "one answer"},
       {"hexlm run qwen3-w4", "a chat"},
       {"hexlm run qwen3-vl-w4 \"Compare them.\" --image a.jpg --image b.png", "a question about images"},
       {"hexlm run qwen3-vl-w4 \"Is <img>a.jpg</img> newer than <img>b.png</img>?\"",
        "images inside the text"},
       {"hexlm run qwen3-w4 --raw -n 40 --temperature 0 \"Once upon a time\"", "continue a text, greedily"},
       {"git diff | hexlm run qwen3-w4 -p - --system \"Summarize this change.\"", "a prompt from stdin"}}};
}

Verb logits_verb() {
  return {
      "logits",
      "Run given token ids and write the logits.",
      {model_positional},
      join({{ids_flag("token ids (required): a JSON file, or a list such as 1,2,3"),
             {"output", 'o', FlagKind::path, "FILE", "", "safetensors file to write (required)", ""},
             image_flag(
                 "image that the ids' image tokens stand for, one a place or one for each of its tokens; "
                 "also writes image_features and image_grid_thw; repeatable"),
             image_max_pixels_flag,
             {"last", 0, FlagKind::integer, "N", "(all)", "write only the last N rows of logits", "", false,
              1, 1e9},
             {"hidden", 0, FlagKind::toggle, "", "",
              "also write hidden.i [T, hidden], the input of layer i; the last is after the final norm", ""},
             format_flag("text|json|md|csv")},
            model_flags}),
      {{"hexlm logits Qwen3-0.6B --ids ids.json -o out.safetensors --precision high",
        "logits [T, vocabulary]"},
       {"hexlm logits qwen3-w4 --ids 9707,11,1879 -o out.safetensors --last 1 --hidden",
        "the last row, and every layer's input"},
       {"hexlm logits qwen3-vl-w4 --ids ids.json --image a.jpg -o out.safetensors",
        "with what the vision tower makes of the image"}}};
}

Verb tokenize_verb() {
  return {
      "tokenize",
      "Turn text into token ids, ids into text, or chat messages into both.",
      {{"MODEL", "any folder with a tokenizer.json"}},
      {{"text", 0, FlagKind::text, "TEXT", "", "text to encode", ""},
       {"file", 0, FlagKind::path, "FILE", "", "file to encode whole; - reads stdin", ""},
       ids_flag("ids to decode: a JSON file, or a list such as 1,2,3"),
       {"jsonl", 0, FlagKind::path, "FILE", "",
        "a line in, a line out: {\"text\"}, {\"ids\"} or a template context {\"messages\", …}; - reads stdin",
        ""},
       {"add-special-tokens", 0, FlagKind::toggle, "", "", "add what the tokenizer puts around a text (BOS)",
        ""},
       {"skip-special-tokens", 0, FlagKind::toggle, "", "", "leave special tokens out of decoded text", ""},
       chat_template_flag,
       no_verify_flag,
       format_flag("text|json"),
       config_flag,
       quiet_flag},
      {{"hexlm tokenize qwen3-w4 --text \"Hello\"", "ids"},
       {"hexlm tokenize qwen3-w4 --ids \"[9707, 11]\"", "text"},
       {"hexlm tokenize qwen3-w4 --jsonl chats.jsonl", "rendered chats and their ids, a line each"}}};
}

Verb perplexity_verb() {
  return {
      "perplexity",
      "Score a text: exp of the mean negative log likelihood of its tokens.",
      {model_positional},
      join({{{"text", 0, FlagKind::path, "FILE", "", "UTF-8 text file (required)", ""},
             {"window", 0, FlagKind::integer, "N", "512",
              "tokens per window, each on an empty cache; its first token is not scored", "HEXLM_WINDOW",
              false, 2, 1e9},
             {"stride", 0, FlagKind::integer, "N", "(the window)",
              "tokens between the starts of windows; the part that overlaps is not scored again", "", false,
              1, 1e9},
             {"protocol", 0, FlagKind::choice, "windows|second-half|words", "windows",
              "windows: all but first tokens; second-half: as llama.cpp; words: per word, not per token", ""},
             format_flag("text|json|md|csv")},
            model_flags}),
      {{"hexlm perplexity Qwen3-0.6B --text heldout.txt --precision high", "the float baseline"},
       {"hexlm perplexity qwen3-w4 --text heldout.txt --format json", "what quantization costs"}}};
}

Verb inspect_verb() {
  return {"inspect",
          "Show what a model holds: tensors, codecs, sizes, graph, memory.",
          {model_positional},
          {{"graph", 0, FlagKind::toggle, "", "", "print the graph, a line a node", ""},
           {"context", 'c', FlagKind::integer, "N", "(the model's)",
            "forecast memory for N tokens; 0 takes the model's maximum", "HEXLM_CONTEXT", false, 0, 1e9},
           threads_flag,
           no_verify_flag,
           format_flag("text|json|md|csv|jsonl"),
           config_flag,
           quiet_flag},
          {{"hexlm inspect qwen3-w4", "tensors and sizes"},
           {"hexlm inspect qwen3-w4 --graph", "the graph, a line a node"},
           {"hexlm inspect qwen3-w4 --context 32768", "memory with a long context"}}};
}

Verb merge_verb() {
  return {
      "merge",
      "Merge LoRA adapters into a checkpoint and write it as a new checkpoint.",
      {{"CHECKPOINT", "Hugging Face checkpoint folder"}},
      join({{output_folder_flag},
            adapter_flags,
            {{"dtype", 0, FlagKind::choice, "f32|f16|bf16", "f32",
              "how merged tensors are stored; f32 loses nothing", "HEXLM_DTYPE"},
             force_flag,
             format_flag("text|json"),
             config_flag,
             quiet_flag}}),
      {{"hexlm merge Qwen3-0.6B --adapter my-lora -o merged", "one adapter"},
       {"hexlm merge Qwen3-0.6B --adapter a --adapter b --adapter-scale 0.7 --adapter-scale 0.3 -o merged",
        "two, weighted"}}};
}

Verb synth_verb() {
  return {"synth",
          "Write a checkpoint of a given shape with random weights, to measure speed and memory.",
          {{"CONFIG", "config.json, or a folder that holds one"}},
          {output_folder_flag,
           {"seed", 0, FlagKind::integer, "N", "0", "the same seed gives the same bytes", "HEXLM_SEED", false,
            0, 9e18},
           {"dtype", 0, FlagKind::choice, "f32|f16|bf16", "bf16", "how weights are stored", "HEXLM_DTYPE"},
           force_flag,
           threads_flag,
           format_flag("text|json"),
           config_flag,
           quiet_flag},
          {{"hexlm synth configs/qwen2.5-0.5b -o /tmp/qwen2.5-0.5b", "a checkpoint of that shape"}}};
}

/// Of a benchmark, backend, threads and precision take several values.
std::vector<Flag> grid_model_flags() {
  std::vector<Flag> flags = model_flags;
  for (Flag& flag : flags) {
    if (flag.name == "threads") {
      flag.kind = FlagKind::integers;
      flag.value = "N,…";
    } else if (flag.name == "backend" || flag.name == "precision") {
      flag.kind = FlagKind::text;
    }
  }
  return flags;
}

Verb bench_verb() {
  return {
      "bench",
      "Measure speed. Rows: pp512 (prefill), tg64 (decode), tg64@d512 (after 512 tokens), vision256x256.",
      {model_positional},
      join({{{"prompt-tokens", 'p', FlagKind::integers, "N,…", "512", "lengths to prefill; 0 for none",
              "HEXLM_PROMPT_TOKENS", false, 0, 1e9},
             {"generated-tokens", 'n', FlagKind::integers, "N,…", "64", "lengths to decode; 0 for none",
              "HEXLM_GENERATED_TOKENS", false, 0, 1e9},
             {"depth", 'd', FlagKind::integers, "N,…", "0", "tokens already in the cache", "HEXLM_DEPTH",
              false, 0, 1e9},
             {"image", 0, FlagKind::text, "WxH,…", "",
              "run the vision tower on synthetic images of these sizes; repeatable", "", true},
             image_max_pixels_flag,
             {"repetitions", 'r', FlagKind::integer, "N", "5", "after one unmeasured warm-up",
              "HEXLM_REPETITIONS", false, 1, 10000},
             {"cooldown", 0, FlagKind::number, "SECONDS", "0", "rest before each row", "", false, 0, 3600},
             {"profile", 0, FlagKind::toggle, "", "",
              "also time every node: share, bytes, GB/s, GMAC/s, share of the memory's speed", ""},
             {"trace", 0, FlagKind::path, "FILE", "",
              "with --profile: nodes in time, for chrome://tracing and Perfetto", ""},
             {"baseline", 0, FlagKind::path, "RESULT.json", "",
              "an earlier result: which rows changed by more than noise", ""},
             make_report_flag(),
             format_flag("text|json|md|csv|jsonl")},
            grid_model_flags()}),
      {{"hexlm bench qwen3-w4 --threads 2", "pp512 and tg64"},
       {"hexlm bench qwen3-w4 -p 512,84 -n 64 -d 0,512 -r 3 --format md", "a table to paste"},
       {"hexlm bench qwen3-vl-w4 -p 84 -n 0 --image 256x256", "an image and a prompt of 84 tokens"}}};
}

Verb version_verb() {
  return {"version",
          "Print the version, the compiler, the kernel sets and this processor's features.",
          {},
          {format_flag("text|json")},
          {{"hexlm version --format json", "for bug reports"}}};
}

}  // namespace

const std::vector<Flag>& model_flag_group() { return model_flags; }
Flag make_threads_flag() { return threads_flag; }
Flag make_format_flag(std::string_view choices) { return format_flag(choices); }
Flag make_chat_template_flag() { return chat_template_flag; }
Flag make_image_max_pixels_flag() { return image_max_pixels_flag; }
Flag make_report_flag() {
  return {"report", 0, FlagKind::path, "FILE.html", "", "also write the result as one offline page", ""};
}
std::vector<Flag> join_flags(std::initializer_list<std::vector<Flag>> groups) { return join(groups); }

const Flag* Verb::find_flag(std::string_view flag_name) const {
  const auto found = std::find_if(flags.begin(), flags.end(),
                                  [flag_name](const Flag& flag) { return flag.name == flag_name; });
  return found == flags.end() ? nullptr : &*found;
}

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = {export_verb(),     run_verb(),     logits_verb(),  tokenize_verb(),
                                        perplexity_verb(), inspect_verb(), merge_verb(),   synth_verb(),
                                        bench_verb(),      eval_verb(),    compare_verb(), bisect_verb(),
                                        version_verb()};
  return all;
}

const Verb* find_verb(std::string_view name) {
  const auto found =
      std::find_if(verbs().begin(), verbs().end(), [name](const Verb& verb) { return verb.name == name; });
  return found == verbs().end() ? nullptr : &*found;
}

std::string setting_key(std::string_view flag_name) {
  std::string key(flag_name);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

const std::vector<std::string>& setting_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> all;
    for (const Verb& verb : verbs()) {
      for (const Flag& flag : verb.flags) {
        if (!flag.environment.empty() && flag.name != "config") all.push_back(setting_key(flag.name));
      }
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }();
  return keys;
}

}  // namespace hexlm::tool
