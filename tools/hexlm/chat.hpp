#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "hexlm/images.hpp"
#include "hexlm/prompt_format.hpp"
#include "runtime/generate.hpp"
#include "runtime/session.hpp"

namespace hexlm::tool {

/// A conversation on one session. The history is rendered anew each turn, as templates change earlier turns
/// (reasoning vanishes); what the new rendering shares with the session's tokens and images is not run again.
class Chat {
 public:
  Chat(Session& session, const PromptFormat& format, GenerateOptions options);

  /// One turn: what the user says and its images in, the answer out (streamed through the options' callback).
  /// A turn that fails leaves the conversation as it was before.
  Result<GenerateResult> turn(const UserMessage& message, const ImageList& images);
  /// Tokens of the last turn's prompt that the session held already.
  int64_t reused_tokens() const { return reused_; }
  void clear();

 private:
  Result<GenerateResult> answer();
  void forget_tokens();
  Result<Prompt> render(bool generation) const;
  /// Brings the session back to a prefix of `prompt`.
  Status rewind(const Prompt& prompt);
  /// Runs up to the end of the user's turn and keeps a snapshot: the next rendering shares at least that.
  Status run_user_turn(const Prompt& prompt);

  Session* session_;
  const PromptFormat* format_;
  GenerateOptions options_;
  int32_t image_token_ = -1;
  Json messages_;
  ImageList images_;  ///< of all messages, in order
  Prompt held_;       ///< what the session holds
  int64_t reused_ = 0;
  std::unique_ptr<StateSnapshot> snapshot_;
};

struct ChatOptions {
  std::vector<std::string> images;  ///< files that go with the first message
  bool verbose = false;             ///< timings after each answer
};

/// Reads turns from the terminal until its end (Ctrl-D) or /exit; /clear starts over, /image FILE adds an
/// image to the next message.
Result<int> run_chat(Session& session, const PromptFormat& format, Images& images, ChatOptions chat_options,
                     GenerateOptions options);

}  // namespace hexlm::tool
