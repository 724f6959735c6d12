#include "hexlm/task_prompt.hpp"

namespace hexlm::tool {
namespace {

Result<std::vector<int32_t>> encode_chat(const PromptFormat& format, const TaskRow& row,
                                         const UserMessage& message) {
  if (row.system.empty()) return format.encode(message);
  Json messages = Json::array();
  messages.push_back({{"role", "system"}, {"content", row.system}});
  messages.push_back({{"role", "user"}, {"content", message.content()}});
  return format.encode(messages, true);
}

}  // namespace

Result<Prompt> encode_task_row(const Model& model, const PromptFormat& format, Images& images,
                               const TaskRow& row, std::string_view answer) {
  if (format.raw() && !row.system.empty())
    return fail(ErrorCode::bad_input, "a system message needs a chat template, there is none");
  std::vector<std::string> files;
  if (!row.image.empty()) files.push_back(row.image);
  // Without a template the border between prompt and answer may lie inside a token: both are one text.
  const std::string text = format.raw() ? row.prompt + std::string(answer) : row.prompt;
  HEXLM_ASSIGN(const UserMessage message, format.parse(text, files));
  HEXLM_ASSIGN(ImageList shown, images.encode(message));
  HEXLM_ASSIGN(std::vector<int32_t> ids, encode_chat(format, row, message));
  if (!format.raw()) {
    HEXLM_ASSIGN(const std::vector<int32_t> more, model.tokenizer()->encode(answer));
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return make_prompt(model, ids, std::move(shown));
}

}  // namespace hexlm::tool
