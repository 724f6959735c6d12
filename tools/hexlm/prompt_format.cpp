#include "hexlm/prompt_format.hpp"

#include <fmt/format.h>

#include "hexlm/chat_context.hpp"
#include "hexlm/common.hpp"
#include "hexlm/report.hpp"

namespace hexlm::tool {

Result<PromptFormat> PromptFormat::create(const Arguments& arguments, const Model& model) {
  if (model.tokenizer() == nullptr) {
    return fail(ErrorCode::bad_input, fmt::format("{} has no tokenizer.json", model.folder()),
                "give token ids with --ids, or copy the tokenizer of the model's family into the folder");
  }
  PromptFormat format(model);
  format.raw_ = arguments.toggle("raw");
  format.inline_images_ = !arguments.toggle("no-inline-images");
  format.system_ = arguments.text("system");
  HEXLM_TRY(check_utf8(format.system_, "--system"));
  format.variables_ = Json::object();
  if (arguments.has("chat-template-kwargs")) {
    HEXLM_ASSIGN(format.variables_,
                 parse_json(arguments.text("chat-template-kwargs"), "--chat-template-kwargs"));
    if (!format.variables_.is_object()) {
      return fail(ErrorCode::usage, fmt::format("--chat-template-kwargs must be a JSON object, got {}",
                                                format.variables_.type_name()));
    }
  }
  if (format.raw_) {
    if (!format.system_.empty())
      return fail(ErrorCode::usage, "--system needs a chat template, --raw uses none");
    return format;
  }
  HEXLM_ASSIGN(format.given_, read_chat_template_flag(arguments));
  if (format.chat_template() != nullptr) return format;
  if (model.chat_template_error()) {
    Error error = *model.chat_template_error();
    if (error.hint.empty())
      error.hint = "--raw continues the prompt without it, --chat-template names another";
    return tl::unexpected<Error>(std::move(error));
  }
  if (!format.system_.empty()) {
    return fail(ErrorCode::usage, fmt::format("--system needs a chat template, {} has none", model.folder()));
  }
  note("note: the model has no chat template: the prompt is continued as it is (as with --raw)");
  return format;
}

const ChatTemplate* PromptFormat::chat_template() const {
  if (raw_) return nullptr;
  return given_ ? &*given_ : model_->chat_template();
}

Json PromptFormat::new_conversation() const {
  Json messages = Json::array();
  if (!system_.empty()) messages.push_back({{"role", "system"}, {"content", system_}});
  return messages;
}

Result<UserMessage> PromptFormat::parse(std::string_view text, const std::vector<std::string>& files) const {
  HEXLM_TRY(check_utf8(text, "the prompt"));
  return parse_user_message(text, files, markup_.placeholder, inline_images_);
}

Result<std::vector<int32_t>> PromptFormat::encode(const UserMessage& prompt) const {
  if (!raw()) {
    Json messages = new_conversation();
    messages.push_back({{"role", "user"}, {"content", prompt.content()}});
    return encode(messages, true);
  }
  std::string text;
  for (const UserMessage::Part& part : prompt.parts) {
    text += part.is_image ? markup_.begin + markup_.placeholder + markup_.end : part.text;
  }
  return model_->tokenizer()->encode(text, true);
}

Result<std::vector<int32_t>> PromptFormat::encode(const Json& messages, bool generation) const {
  Json context = variables_;
  context["messages"] = messages;
  context["add_generation_prompt"] = generation;
  context = template_context(model_->special_tokens(), context);
  HEXLM_ASSIGN(const std::string text, chat_template()->render(context));
  // The template writes BOS itself where a model wants one.
  return model_->tokenizer()->encode(text);
}

}  // namespace hexlm::tool
