#include "hexlm/task_prompt.hpp"

#include <fmt/format.h>

namespace hexlm::tool {

Result<std::vector<int32_t>> encode_task_row(const Model& model, const PromptFormat& format,
                                             const TaskRow& row, std::string_view answer) {
  if (!row.image.empty()) {
    return fail(ErrorCode::unsupported,
                fmt::format("line {} has the image {}, images are not supported yet", row.line, row.image),
                "evaluate rows without images");
  }
  if (format.raw()) {
    if (!row.system.empty())
      return fail(ErrorCode::bad_input, "a system message needs a chat template, there is none");
    // Together, as the border between prompt and answer may lie inside a token.
    return model.tokenizer()->encode(row.prompt + std::string(answer), true);
  }
  Json messages = Json::array();
  if (row.system.empty()) {
    messages = format.new_conversation();
  } else {
    messages.push_back({{"role", "system"}, {"content", row.system}});
  }
  messages.push_back({{"role", "user"}, {"content", row.prompt}});
  HEXLM_ASSIGN(std::vector<int32_t> ids, format.encode(messages, true));
  HEXLM_ASSIGN(const std::vector<int32_t> more, model.tokenizer()->encode(answer));
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

}  // namespace hexlm::tool
