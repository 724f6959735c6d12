#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

#include "base/log.hpp"
#include "base/progress.hpp"
#include "evaluation/degeneration.hpp"
#include "hexlm/chat.hpp"
#include "hexlm/common.hpp"
#include "hexlm/images.hpp"
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
    if (::isatty(STDIN_FILENO) == 1) note("the prompt, until Ctrl-D on a line of its own:");
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

/// With the flags that only this verb has.
GenerateOptions run_options(const Arguments& arguments, const Model& model) {
  GenerateOptions options = generate_options(arguments, model);
  options.sampling.min_p = static_cast<float>(arguments.number("min-p"));
  options.sampling.presence_penalty = static_cast<float>(arguments.number("presence-penalty"));
  options.sampling.frequency_penalty = static_cast<float>(arguments.number("frequency-penalty"));
  options.ignore_eos = arguments.toggle("ignore-eos");
  return options;
}

Json to_json(const Opened& opened, const Images& images, const GenerateResult& result) {
  const VisionTimings vision = images.timings();
  return {{"text", result.text},
          {"token_ids", result.token_ids},
          {"prompt_tokens", result.prompt_tokens},
          {"finish_reason", result.finish_reason},
          {"images", images.listed()},
          {"timings",
           {{"load_s", opened.load_s},
            {"vision_s", vision.total()},
            {"vision", timings_json(vision)},
            {"prefill_s", result.prefill_s},
            {"decode_s", result.decode_s}}},
          {"placement", images.placement(*opened.session)}};
}

void note_timings(const Opened& opened, const Images& images, const GenerateResult& result,
                  const Arguments& arguments) {
  note(describe_settings(arguments));
  note(fmt::format("load {:.2f} s", opened.load_s));
  if (images.timings().images > 0) note(describe(images.timings()));
  note(describe(result, 0));
}

Result<int> answer(const Opened& opened, const Images& images, const Prompt& prompt, GenerateOptions options,
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
    Json json = to_json(opened, images, result);
    json["degenerate"] = to_string(finding.kind);
    print(to_text(json));
  } else {
    print(has_tokenizer ? "\n" : format_ids(result.token_ids) + "\n");
  }
  if (finding) log_warning(describe(finding));
  if (arguments.toggle("verbose")) note_timings(opened, images, result, arguments);
  print_placement(images.placement(*opened.session));
  return result.finish_reason == "interrupted" && interrupted() ? static_cast<int>(ErrorCode::interrupted)
                                                                : 0;
}

/// Images before the session: a file that is none is told before the weights are prepared, and the tower is
/// gone when they are.
Result<Prompt> read_prompt(const Input& input, const PromptFormat* format, const Model& model, Images& images,
                           const std::vector<std::string>& files) {
  Result<Prompt> prompt;
  if (input.ids) {
    HEXLM_ASSIGN(ImageList shown, images.encode(files));
    prompt = prompt_of_ids(model, *input.ids, std::move(shown));
  } else {
    HEXLM_ASSIGN(const UserMessage message, format->parse(*input.prompt, files));
    HEXLM_ASSIGN(ImageList shown, images.encode(message));
    HEXLM_ASSIGN(const std::vector<int32_t> ids, format->encode(message));
    prompt = make_prompt(model, ids, std::move(shown));
  }
  images.release();
  return prompt;
}

Result<int> chat(Opened& opened, const PromptFormat& format, Images& images, GenerateOptions options,
                 const Arguments& arguments) {
  if (format.raw()) {
    return fail(ErrorCode::usage, "a chat needs a chat template",
                "give a prompt, or a template with --chat-template");
  }
  const std::vector<std::string> files = arguments.texts("image");
  HEXLM_TRY(images.encode(files));
  HEXLM_TRY(start_session(arguments, opened));
  HEXLM_ASSIGN(const int code, run_chat(*opened.session, format, images, {files, arguments.toggle("verbose")},
                                        std::move(options)));
  print_placement(images.placement(*opened.session));
  return code;
}

}  // namespace

Result<int> run_run(Arguments& arguments) {
  HEXLM_ASSIGN(const Input input, read_input(arguments));
  HEXLM_ASSIGN(Opened opened, open_timed_model(arguments));
  GenerateOptions options = run_options(arguments, *opened.model);
  Images images(arguments, opened.model);
  std::optional<PromptFormat> format;
  if (!input.ids) {
    HEXLM_ASSIGN(format, PromptFormat::create(arguments, *opened.model));
    if (!input.prompt) return chat(opened, *format, images, std::move(options), arguments);
  }
  HEXLM_ASSIGN(const Prompt prompt, read_prompt(input, format ? &*format : nullptr, *opened.model, images,
                                                arguments.texts("image")));
  HEXLM_TRY(start_session(arguments, opened));
  return answer(opened, images, prompt, std::move(options), arguments);
}

}  // namespace hexlm::tool
