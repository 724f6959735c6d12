#include "hexlm/chat_context.hpp"

#include "base/atomic_file.hpp"
#include "tokenizer/tool_arguments.hpp"

namespace hexlm::tool {

Result<std::optional<ChatTemplate>> read_chat_template_flag(const Arguments& arguments) {
  if (!arguments.has("chat-template")) return std::optional<ChatTemplate>();
  const std::string path = arguments.text("chat-template");
  HEXLM_ASSIGN(const std::string source, read_file(path, uint64_t{4} << 20));
  HEXLM_ASSIGN(ChatTemplate parsed, ChatTemplate::parse(source, path));
  return std::optional<ChatTemplate>(std::move(parsed));
}

Json template_context(const Json& special_tokens, const Json& context) {
  Json merged = special_tokens;
  for (const auto& [key, value] : context.items()) merged[key] = value;
  return with_parsed_tool_arguments(std::move(merged));
}

}  // namespace hexlm::tool
