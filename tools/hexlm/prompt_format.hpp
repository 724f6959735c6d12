#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "hexlm/arguments.hpp"
#include "hexlm/user_message.hpp"
#include "runtime/model.hpp"

namespace hexlm::tool {

/// How a prompt becomes token ids: through the model's (or --chat-template's) template, or as it is with
/// --raw and, with a note on stderr, for a model without template. Ids hold one image token for each image;
/// `make_prompt` expands them.
class PromptFormat {
 public:
  /// Errors: bad_input for a folder without tokenizer or a template that can't be used; usage for
  /// --chat-template-kwargs that are no JSON object.
  static Result<PromptFormat> create(const Arguments& arguments, const Model& model);

  bool raw() const { return chat_template() == nullptr; }
  /// The user's text with its images; see parse_user_message.
  Result<UserMessage> parse(std::string_view text, const std::vector<std::string>& files) const;
  /// The messages of a new conversation: the system message, if any.
  Json new_conversation() const;
  /// One prompt as a whole: raw text with images marked as the model's family does, or a conversation of one
  /// user turn.
  Result<std::vector<int32_t>> encode(const UserMessage& prompt) const;
  /// A conversation through the template; with `generation` it ends where the answer begins.
  Result<std::vector<int32_t>> encode(const Json& messages, bool generation) const;

 private:
  explicit PromptFormat(const Model& model) : model_(&model), markup_(image_markup(model)) {}
  const ChatTemplate* chat_template() const;
  const Model* model_;
  ImageMarkup markup_;
  std::optional<ChatTemplate> given_;
  bool raw_ = false;
  bool inline_images_ = true;
  std::string system_;
  Json variables_;
};

}  // namespace hexlm::tool
