#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "hexlm/prompt_format.hpp"
#include "runtime/generate.hpp"
#include "runtime/session.hpp"

namespace hexlm::tool {

/// A conversation on one session. The history is rendered anew each turn, as templates change earlier turns
/// (reasoning vanishes); what the new rendering shares with the session's tokens is not run again.
class Chat {
 public:
  Chat(Session& session, const PromptFormat& format, GenerateOptions options);

  /// One turn: the user's text in, the answer out (streamed through the options' callback). A turn that fails
  /// leaves the conversation as it was before.
  Result<GenerateResult> turn(const std::string& text);
  void clear();

 private:
  Result<GenerateResult> answer();
  void forget_tokens();
  /// Brings the session back to a prefix of `ids`; returns how many of them it holds then.
  Result<size_t> rewind(const std::vector<int32_t>& ids);
  /// Runs up to the end of the user's turn and keeps a snapshot: the next rendering shares at least that.
  Status run_user_turn(const std::vector<int32_t>& ids, size_t held);

  Session* session_;
  const PromptFormat* format_;
  GenerateOptions options_;
  Json messages_;
  std::vector<int32_t> held_;  ///< tokens in the session
  std::unique_ptr<StateSnapshot> snapshot_;
};

/// Reads turns from the terminal until its end (Ctrl-D) or /exit; /clear starts over.
Result<int> run_chat(Session& session, const PromptFormat& format, GenerateOptions options);

}  // namespace hexlm::tool
