#include "hexlm/chat.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "base/log.hpp"
#include "base/progress.hpp"
#include "evaluation/degeneration.hpp"
#include "hexlm/report.hpp"

namespace hexlm::tool {
namespace {

size_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  const size_t count = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin()).first - a.begin());
}

/// At the prompt there is nothing to stop: Ctrl-C ends the program there.
bool read_line(std::string& line) {
  std::signal(SIGINT, SIG_DFL);
  std::fputs("> ", stderr);
  const bool read = static_cast<bool>(std::getline(std::cin, line));
  install_interrupt_handler();
  return read;
}

}  // namespace

Chat::Chat(Session& session, const PromptFormat& format, GenerateOptions options)
    : session_(&session),
      format_(&format),
      options_(std::move(options)),
      messages_(format.new_conversation()) {}

void Chat::forget_tokens() {
  held_.clear();
  snapshot_.reset();
  session_->reset();
}

void Chat::clear() {
  messages_ = format_->new_conversation();
  forget_tokens();
}

Result<size_t> Chat::rewind(const std::vector<int32_t>& ids) {
  // The last token must run to give logits.
  const size_t shared = std::min(common_prefix(held_, ids), ids.size() - 1);
  size_t kept = shared;
  if (shared < held_.size()) {
    if (session_->state().can_truncate()) {
      HEXLM_TRY(session_->state().truncate(static_cast<int64_t>(shared)));
    } else if (snapshot_ && static_cast<size_t>(snapshot_->length()) <= shared) {
      HEXLM_TRY(session_->state().restore(*snapshot_));
      kept = static_cast<size_t>(snapshot_->length());
    } else {
      session_->reset();
      kept = 0;
    }
  }
  held_.resize(kept);
  return kept;
}

Status Chat::run_user_turn(const std::vector<int32_t>& ids, size_t held) {
  if (session_->state().can_truncate()) return {};
  HEXLM_ASSIGN(const std::vector<int32_t> user_turn, format_->encode(messages_, false));
  const size_t end = std::min(common_prefix(user_turn, ids), ids.size() - 1);
  if (end <= held) return {};
  const auto tokens = std::span(ids).subspan(held, end - held);
  HEXLM_TRY(session_->forward(tokens, 0, nullptr));
  held_.insert(held_.end(), tokens.begin(), tokens.end());
  HEXLM_ASSIGN(snapshot_, session_->state().snapshot());
  return {};
}

Result<GenerateResult> Chat::answer() {
  HEXLM_ASSIGN(const std::vector<int32_t> ids, format_->encode(messages_, true));
  HEXLM_ASSIGN(const size_t held, rewind(ids));
  HEXLM_TRY(run_user_turn(ids, held));
  options_.earlier_tokens = held_;
  HEXLM_ASSIGN(GenerateResult result, generate(*session_, std::span(ids).subspan(held_.size()), options_));
  held_ = ids;
  held_.insert(held_.end(), result.token_ids.begin(), result.token_ids.end());
  held_.resize(static_cast<size_t>(session_->length()));  // the last token was sampled but not run
  return result;
}

Result<GenerateResult> Chat::turn(const std::string& text) {
  messages_.push_back({{"role", "user"}, {"content", text}});
  Result<GenerateResult> result = answer();
  if (result) {
    messages_.push_back({{"role", "assistant"}, {"content", result->text}});
  } else {
    messages_.erase(messages_.size() - 1);
    forget_tokens();
  }
  return result;
}

Result<int> run_chat(Session& session, const PromptFormat& format, GenerateOptions options) {
  note("a chat: /clear starts over, /exit or Ctrl-D ends it, Ctrl-C stops an answer");
  options.on_text = [](std::string_view piece) {
    print(piece);
    return stdout_works();
  };
  Chat chat(session, format, std::move(options));
  std::string line;
  while (stdout_works() && read_line(line)) {
    if (line.empty()) continue;
    if (line == "/exit") break;
    if (line == "/clear") {
      chat.clear();
      continue;
    }
    const auto result = chat.turn(line);
    print("\n");
    stdout_works();
    if (result) {
      if (const DegenerationFinding finding = find_degeneration(*result, nullptr, true))
        log_warning(describe(finding));
    } else {
      const Error& error = result.error();
      if (error.code != ErrorCode::limit && error.code != ErrorCode::interrupted) {
        return tl::unexpected<Error>(error);
      }
      print_error(error, false);
    }
    clear_interrupt();
  }
  return 0;
}

}  // namespace hexlm::tool
