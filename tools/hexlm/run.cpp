#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

#include "base/log.hpp"
#include "base/progress.hpp"
#include "evaluation/degeneration.hpp"
#include "hexlm/chat.hpp"
#include "hexlm/common.hpp"
#include "hexlm/prompt_format.hpp"
#include "hexlm/verbs.hpp"
#include "runtime/generate.hpp"

namespace hexlm::tool {
namespace {

/// Where the prompt comes from; all empty for a chat.
struct Input {
  std::optional<std::string> prompt;
  std::optional<std::vector<int32_t>> ids;
};

Result<Input> read_input(const Arguments& arguments) {
  Input input;
  const std::string positional = arguments.positional(1);
  const bool by_flag = arguments.has("prompt");
  const int given = (positional.empty() ? 0 : 1) + (by_flag ? 1 : 0) + (arguments.has("ids") ? 1 : 0);
  if (given > 1)
    return fail(ErrorCode::usage, "give the prompt once: as argument, with --prompt or as --ids");
  if (arguments.has("ids")) {
    HEXLM_ASSIGN(input.ids, read_ids(arguments.text("ids")));
    return input;
  }
  std::string text = by_flag ? arguments.text("prompt") : positional;
  if (by_flag && text == "-") {
    HEXLM_ASSIGN(text, read_text("-"));
    // What `echo` and editors end a text with is not part of the question.
    if (text.ends_with('\n')) text.pop_back();
  }
  if (given == 1) {
    input.prompt = std::move(text);
  } else if (::isatty(STDIN_FILENO) != 1) {
    return fail(ErrorCode::usage, "no prompt given", "give one, or -p - to read it from stdin");
  }
  return input;
}

GenerateOptions generate_options(const Arguments& arguments, const Model& model) {
  GenerateOptions options;
  options.sampling.temperature = static_cast<float>(arguments.number("temperature"));
  options.sampling.top_k = static_cast<int32_t>(arguments.integer("top-k"));
  options.sampling.top_p = static_cast<float>(arguments.number("top-p"));
  options.sampling.min_p = static_cast<float>(arguments.number("min-p"));
  options.sampling.repetition_penalty = static_cast<float>(arguments.number("repetition-penalty"));
  options.sampling.presence_penalty = static_cast<float>(arguments.number("presence-penalty"));
  options.sampling.frequency_penalty = static_cast<float>(arguments.number("frequency-penalty"));
  options.sampling.seed = static_cast<uint64_t>(arguments.integer("seed"));
  options.max_new_tokens = arguments.integer("max-new-tokens");
  options.stop = arguments.texts("stop");
  options.eos_tokens = model.generation().eos_tokens;
  options.ignore_eos = arguments.toggle("ignore-eos");
  return options;
}

void note_timings(const Opened& opened, const GenerateResult& result) {
  const auto produced = static_cast<double>(result.token_ids.size());
  const auto rate = [](double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; };
  note(fmt::format(
      "load {:.2f} s; prompt {} tokens, {:.2f} s ({:.1f} tok/s); answer {} tokens, {:.2f} s ({:.1f} tok/s)",
      opened.load_s, result.prompt_tokens, result.prefill_s,
      rate(static_cast<double>(result.prompt_tokens), result.prefill_s), result.token_ids.size(),
      result.decode_s, rate(produced, result.decode_s)));
}

Json to_json(const Opened& opened, const GenerateResult& result) {
  return {{"text", result.text},
          {"token_ids", result.token_ids},
          {"prompt_tokens", result.prompt_tokens},
          {"finish_reason", result.finish_reason},
          {"timings",
           {{"load_s", opened.load_s},
            {"vision_s", 0.0},
            {"prefill_s", result.prefill_s},
            {"decode_s", result.decode_s}}},
          {"placement", opened.session->placement()}};
}

Result<int> answer(const Opened& opened, std::span<const int32_t> prompt, GenerateOptions options,
                   const Arguments& arguments) {
  const bool text = format_of(arguments) == Format::text;
  const bool has_tokenizer = opened.model->tokenizer() != nullptr;
  if (text) {
    options.on_text = [](std::string_view piece) {
      print(piece);
      return stdout_works();
    };
  }
  LogitWatch watch;
  options.on_logits = [&watch](std::span<const float> logits) { watch.see(logits); };
  HEXLM_ASSIGN(const GenerateResult result, generate(*opened.session, prompt, options));
  const DegenerationFinding finding = find_degeneration(result, &watch, has_tokenizer);
  if (!text) {
    Json json = to_json(opened, result);
    json["degenerate"] = to_string(finding.kind);
    print(to_text(json));
  } else {
    print(has_tokenizer ? "\n" : format_ids(result.token_ids) + "\n");
  }
  if (finding) log_warning(describe(finding));
  if (arguments.toggle("verbose")) note_timings(opened, result);
  print_placement(*opened.session);
  return result.finish_reason == "interrupted" && interrupted() ? static_cast<int>(ErrorCode::interrupted)
                                                                : 0;
}

}  // namespace

Result<int> run_run(Arguments& arguments) {
  HEXLM_ASSIGN(const Input input, read_input(arguments));
  HEXLM_ASSIGN(const Opened opened, open_session(arguments));
  GenerateOptions options = generate_options(arguments, *opened.model);
  if (input.ids) return answer(opened, *input.ids, std::move(options), arguments);
  HEXLM_ASSIGN(const PromptFormat format, PromptFormat::create(arguments, *opened.model));
  if (input.prompt) {
    HEXLM_ASSIGN(const std::vector<int32_t> ids, format.encode(*input.prompt));
    return answer(opened, ids, std::move(options), arguments);
  }
  if (format.raw()) {
    return fail(ErrorCode::usage, "a chat needs a chat template",
                "give a prompt, or a template with --chat-template");
  }
  HEXLM_ASSIGN(const int code, run_chat(*opened.session, format, std::move(options)));
  print_placement(*opened.session);
  return code;
}

}  // namespace hexlm::tool
