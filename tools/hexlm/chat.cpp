#include "hexlm/chat.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/log.hpp"
#include "base/progress.hpp"
#include "evaluation/degeneration.hpp"
#include "hexlm/common.hpp"
#include "hexlm/report.hpp"
#include "hexlm/standard_input.hpp"

namespace hexlm::tool {

Chat::Chat(Session& session, const PromptFormat& format, GenerateOptions options)
    : session_(&session),
      format_(&format),
      options_(std::move(options)),
      messages_(format.new_conversation()) {
  const std::optional<VisionConfig>& vision = session.model().config().vision;
  if (vision) image_token_ = vision->image_token;
}

void Chat::forget_tokens() {
  held_ = {};
  snapshot_.reset();
  session_->reset();
}

void Chat::clear() {
  messages_ = format_->new_conversation();
  images_.clear();
  forget_tokens();
}

Result<Prompt> Chat::render(bool generation) const {
  HEXLM_ASSIGN(const std::vector<int32_t> ids, format_->encode(messages_, generation));
  return make_prompt(session_->model(), ids, images_);
}

Status Chat::rewind(const Prompt& prompt) {
  // The last token must run to give logits.
  const auto last = static_cast<int64_t>(prompt.tokens.size()) - 1;
  const int64_t shared =
      whole_prefix(prompt, std::min(common_prefix(held_, prompt, image_token_), last), image_token_);
  int64_t kept = shared;
  if (shared < static_cast<int64_t>(held_.tokens.size())) {
    if (session_->state().can_truncate()) {
      HEXLM_TRY(session_->state().truncate(shared));
    } else if (snapshot_ && snapshot_->length() <= shared) {
      HEXLM_TRY(session_->state().restore(*snapshot_));
      kept = snapshot_->length();
    } else {
      session_->reset();
      kept = 0;
    }
  }
  HEXLM_ASSIGN(held_, take_prefix(prompt, kept, image_token_));
  return {};
}

Status Chat::run_user_turn(const Prompt& prompt) {
  if (session_->state().can_truncate()) return {};
  HEXLM_ASSIGN(const Prompt user_turn, render(false));
  const auto held = static_cast<int64_t>(held_.tokens.size());
  const auto last = static_cast<int64_t>(prompt.tokens.size()) - 1;
  const int64_t end =
      whole_prefix(prompt, std::min(common_prefix(user_turn, prompt, image_token_), last), image_token_);
  if (end <= held) return {};
  HEXLM_ASSIGN(Prompt head, take_prefix(prompt, end, image_token_));
  HEXLM_ASSIGN(const Prompt more, drop_prefix(head, held, image_token_));
  HEXLM_TRY(session_->forward(more, 0, nullptr));
  held_ = std::move(head);
  HEXLM_ASSIGN(snapshot_, session_->state().snapshot());
  return {};
}

Result<GenerateResult> Chat::answer() {
  HEXLM_ASSIGN(Prompt prompt, render(true));
  HEXLM_TRY(rewind(prompt));
  reused_ = static_cast<int64_t>(held_.tokens.size());
  const auto start = std::chrono::steady_clock::now();
  HEXLM_TRY(run_user_turn(prompt));
  const double user_turn_s = seconds_since(start);
  HEXLM_ASSIGN(const Prompt rest,
               drop_prefix(prompt, static_cast<int64_t>(held_.tokens.size()), image_token_));
  options_.earlier_tokens = std::move(held_.tokens);
  HEXLM_ASSIGN(GenerateResult result, generate(*session_, rest, options_));
  result.prefill_s += user_turn_s;
  held_ = std::move(prompt);
  held_.tokens.insert(held_.tokens.end(), result.token_ids.begin(), result.token_ids.end());
  held_.tokens.resize(static_cast<size_t>(session_->length()));  // the last token was sampled but not run
  return result;
}

Result<GenerateResult> Chat::turn(const UserMessage& message, const ImageList& images) {
  messages_.push_back({{"role", "user"}, {"content", message.content()}});
  images_.insert(images_.end(), images.begin(), images.end());
  Result<GenerateResult> result = answer();
  if (result) {
    messages_.push_back({{"role", "assistant"}, {"content", result->text}});
  } else {
    messages_.erase(messages_.size() - 1);
    images_.resize(images_.size() - images.size());
    forget_tokens();
  }
  return result;
}

namespace {

/// The conversation at the terminal.
class Terminal {
 public:
  Terminal(Session& session, const PromptFormat& format, Images& images, ChatOptions chat_options,
           GenerateOptions options)
      : format_(&format),
        images_(&images),
        chat_options_(std::move(chat_options)),
        chat_(session, format, std::move(options)) {}

  /// False for the line that ends the chat. Errors: those that leave nothing to go on with.
  Result<bool> take(const std::string& line) {
    if (line.empty()) return true;
    if (line == "/exit") return false;
    if (line == "/clear") {
      chat_.clear();
      chat_options_.images.clear();
    } else if (line == "/image" || line.starts_with("/image ")) {
      add_image(line.substr(std::min<size_t>(line.size(), 7)));
    } else {
      HEXLM_TRY(say(line));
    }
    clear_interrupt();
    return true;
  }

 private:
  /// Encoded at once, so that a wrong file is told before the question is typed.
  void add_image(const std::string& file) {
    if (file.empty()) {
      print_error({ErrorCode::usage, "/image needs a file", "/image photo.jpg, then the question"},
                  ErrorStyle::text);
      return;
    }
    const Result<ImageList> shown = images_->encode({file});
    if (!shown) return print_error(shown.error(), ErrorStyle::text);
    chat_options_.images.push_back(file);
    note(fmt::format("{}: {} tokens, before the text of the next message", file, shown->front()->tokens));
  }

  Status say(const std::string& line) {
    if (const Status valid = check_utf8(line, "your line"); !valid) {
      print_error(valid.error(), ErrorStyle::text);
      return {};
    }
    const Result<UserMessage> message = format_->parse(line, chat_options_.images);
    const Result<ImageList> shown =
        message ? images_->encode(*message) : tl::unexpected<Error>(message.error());
    if (!shown) {
      print_error(shown.error(), ErrorStyle::text);
      return {};
    }
    const Result<GenerateResult> result = chat_.turn(*message, *shown);
    print("\n");
    stdout_works();
    if (result) {
      if (const DegenerationFinding finding = find_degeneration(*result, nullptr, true)) {
        log_warning(describe(finding));
      }
      chat_options_.images.clear();
      if (chat_options_.verbose) note_timings(*result);
      return {};
    }
    const Error& error = result.error();
    if (error.code != ErrorCode::limit && error.code != ErrorCode::interrupted) {
      return tl::unexpected<Error>(error);
    }
    print_error(error, ErrorStyle::text);
    return {};
  }

  void note_timings(const GenerateResult& result) {
    const VisionTimings vision = images_->timings() - told_;
    if (vision.images > 0) note(describe(vision));
    note(describe(result, chat_.reused_tokens()));
    told_ = images_->timings();
  }

  const PromptFormat* format_;
  Images* images_;
  ChatOptions chat_options_;
  Chat chat_;
  VisionTimings told_;  ///< what earlier turns' notes have counted
};

}  // namespace

Result<int> run_chat(Session& session, const PromptFormat& format, Images& images, ChatOptions chat_options,
                     GenerateOptions options) {
  const bool sees = session.model().vision_graph() != nullptr;
  note(fmt::format("a chat: {}/clear starts over, /exit or Ctrl-D ends it, Ctrl-C stops an answer",
                   sees ? "/image FILE shows an image, " : ""));
  options.on_text = [](std::string_view piece) {
    print(piece);
    return stdout_works();
  };
  Terminal terminal(session, format, images, std::move(chat_options), std::move(options));
  StandardInput input;
  std::string line;
  while (stdout_works()) {
    std::fputs("> ", stderr);
    // At the prompt there is nothing to stop: Ctrl-C ends the program there.
    const Result<bool> more = input.line(line);
    if (!more && more.error().code == ErrorCode::interrupted) {
      std::fputs("\n", stderr);
      return static_cast<int>(ErrorCode::interrupted);
    }
    if (!more) return tl::unexpected<Error>(more.error());
    if (!*more) break;
    HEXLM_ASSIGN(const bool goes_on, terminal.take(line));
    if (!goes_on) break;
  }
  return 0;
}

}  // namespace hexlm::tool
