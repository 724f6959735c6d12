#pragma once

#include <optional>
#include <string>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "hexlm/arguments.hpp"
#include "tokenizer/chat_template.hpp"

namespace hexlm::tool {

/// The template that --chat-template names; nullopt when the flag is absent.
Result<std::optional<ChatTemplate>> read_chat_template_flag(const Arguments& arguments);

/// `context` over the model's special tokens, which every template may name.
Json template_context(const Json& special_tokens, const Json& context);

}  // namespace hexlm::tool
