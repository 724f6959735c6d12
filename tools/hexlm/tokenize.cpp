#include <filesystem>
#include <fmt/format.h>

#include "base/text.hpp"
#include "formats/package.hpp"
#include "hexlm/chat_context.hpp"
#include "hexlm/common.hpp"
#include "hexlm/verbs.hpp"
#include "runtime/model_files.hpp"
#include "tokenizer/tokenizer.hpp"

namespace hexlm::tool {
namespace {

/// What the folder offers for text: no configuration and no weights are needed.
struct TextModel {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::optional<Error> chat_template_error;
  Json special_tokens;
  bool add_special = false;
  bool skip_special = false;
};

Result<TextModel> open_text_model(const Arguments& arguments) {
  const std::string folder = arguments.positional(0);
  const std::filesystem::path path = std::filesystem::path(folder) / "tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return fail(ErrorCode::bad_input, fmt::format("{} does not exist", path.string()),
                "name a folder that holds a tokenizer.json");
  }
  if (Package::is_package(folder) && !arguments.toggle("no-verify")) HEXLM_TRY(verify_text_files(folder));
  HEXLM_ASSIGN(Tokenizer tokenizer, Tokenizer::load(path.string()));
  HEXLM_ASSIGN(std::optional<ChatTemplate> given, read_chat_template_flag(arguments));
  HEXLM_ASSIGN(ChatFiles files, read_chat_files(folder));
  TextModel model{std::move(tokenizer),
                  std::move(given),
                  std::nullopt,
                  std::move(files.special_tokens),
                  arguments.toggle("add-special-tokens"),
                  arguments.toggle("skip-special-tokens")};
  if (!model.chat_template && files.source) {
    Result<ChatTemplate> parsed = ChatTemplate::parse(*files.source, files.origin);
    if (parsed) {
      model.chat_template.emplace(*std::move(parsed));
    } else {
      model.chat_template_error = parsed.error();
    }
  }
  return model;
}

Result<Json> encode(const TextModel& model, const std::string& text) {
  HEXLM_ASSIGN(const std::vector<int32_t> ids, model.tokenizer.encode(text, model.add_special));
  return Json{{"ids", ids}};
}

Result<Json> render(const TextModel& model, const Json& context) {
  if (!model.chat_template) {
    if (model.chat_template_error) return tl::unexpected<Error>(*model.chat_template_error);
    return fail(ErrorCode::bad_input, "the folder has no chat template",
                "name one with --chat-template FILE");
  }
  HEXLM_ASSIGN(std::string text,
               model.chat_template->render(template_context(model.special_tokens, context)));
  // The template writes BOS itself where a model wants one.
  HEXLM_ASSIGN(const std::vector<int32_t> ids, model.tokenizer.encode(text));
  return Json{{"text", std::move(text)}, {"ids", ids}};
}

Result<Json> decode(const TextModel& model, const Json& ids, const char* what) {
  const std::string expected = fmt::format("expected ids from 0 to {}", model.tokenizer.size() - 1);
  const auto shown = [](const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  constexpr const char* hint = "give ids of this model's tokenizer";
  if (!ids.is_array()) {
    return fail(ErrorCode::bad_input, fmt::format("{} is {}, {}", what, shown(ids), expected), hint);
  }
  std::vector<int32_t> list;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!ids[i].is_number_integer() || ids[i] < 0 || ids[i] >= model.tokenizer.size()) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: entry {} is {}, {}", what, i, shown(ids[i]), expected), hint);
    }
    list.push_back(ids[i].get<int32_t>());
  }
  return Json{{"text", model.tokenizer.decode(list, model.skip_special)}};
}

Result<Json> convert_line(const TextModel& model, std::string_view line, const std::string& where) {
  HEXLM_ASSIGN(const Json request, parse_json(line, where));
  const auto text = request.is_object() ? request.find("text") : request.end();
  Result<Json> answer =
      fail(ErrorCode::bad_input, "expected an object with \"text\", \"ids\" or \"messages\"");
  if (request.is_object()) {
    if (request.contains("messages")) {
      answer = render(model, request);
    } else if (text != request.end() && text->is_string()) {
      answer = encode(model, text->get<std::string>());
    } else if (request.contains("ids")) {
      answer = decode(model, request["ids"], "\"ids\"");
    }
  }
  if (answer) return answer;
  Error error = answer.error();
  error.message = fmt::format("{}: {}", where, error.message);
  return tl::unexpected<Error>(std::move(error));
}

Status convert_lines(const TextModel& model, const std::string& path) {
  HEXLM_ASSIGN(const std::string content, read_text(path));
  int64_t number = 0;
  for (const std::string_view line : split(content, '\n')) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    HEXLM_ASSIGN(const Json answer, convert_line(model, line, fmt::format("{}:{}", path, number)));
    print(answer.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    if (!stdout_works()) return {};
  }
  return {};
}

void print_ids(const Json& answer, Format format) {
  if (format == Format::json) return print(to_text(answer));
  print(format_ids(answer["ids"].get<std::vector<int32_t>>()) + "\n");
}

}  // namespace

Result<int> run_tokenize(Arguments& arguments) {
  int inputs = 0;
  for (const char* flag : {"text", "file", "ids", "jsonl"}) inputs += arguments.has(flag) ? 1 : 0;
  if (inputs != 1) {
    return fail(ErrorCode::usage,
                fmt::format("tokenize needs one of --text, --file, --ids and --jsonl, got {}", inputs));
  }
  HEXLM_ASSIGN(const TextModel model, open_text_model(arguments));
  const Format format = format_of(arguments);
  if (arguments.has("jsonl")) {
    HEXLM_TRY(convert_lines(model, arguments.text("jsonl")));
  } else if (arguments.has("ids")) {
    HEXLM_ASSIGN(const std::vector<int32_t> ids, read_ids(arguments.text("ids")));
    HEXLM_ASSIGN(const Json answer, decode(model, Json(ids), "--ids"));
    print(format == Format::json ? to_text(answer) : answer["text"].get<std::string>() + "\n");
  } else if (arguments.has("file")) {
    HEXLM_ASSIGN(const std::string text, read_text(arguments.text("file")));
    HEXLM_ASSIGN(const Json answer, encode(model, text));
    print_ids(answer, format);
  } else {
    HEXLM_ASSIGN(const Json answer, encode(model, arguments.text("text")));
    print_ids(answer, format);
  }
  return 0;
}

}  // namespace hexlm::tool
