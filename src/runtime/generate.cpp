#include "runtime/generate.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "base/progress.hpp"
#include "runtime/stop_filter.hpp"

namespace hexlm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A stop string that is a special token never appears in the text: it ends the answer as a token.
void split_stops(const Tokenizer& tokenizer, const GenerateOptions& options, std::vector<std::string>& texts,
                 std::vector<int32_t>& tokens) {
  for (const std::string& stop : options.stop) {
    const std::optional<int32_t> id = tokenizer.token_id(stop);
    if (id && tokenizer.is_special(*id)) {
      tokens.push_back(*id);
    } else {
      texts.push_back(stop);
    }
  }
}

/// Turns sampled tokens into certain text and hands it on.
class Answer {
 public:
  Answer(const Tokenizer* tokenizer, const GenerateOptions& options, GenerateResult& result)
      : options_(options),
        result_(result),
        end_tokens_(options.ignore_eos ? std::vector<int32_t>() : options.eos_tokens),
        filter_({}) {
    if (tokenizer == nullptr) return;
    decoder_.emplace(*tokenizer);
    std::vector<std::string> texts;
    split_stops(*tokenizer, options, texts, end_tokens_);
    filter_ = StopFilter(std::move(texts));
  }

  /// False when the answer has ended; the finish reason is then set.
  bool add(int32_t id) {
    result_.token_ids.push_back(id);
    if (std::find(end_tokens_.begin(), end_tokens_.end(), id) != end_tokens_.end()) return end("stop");
    if (decoder_ && !emit(filter_.push(decoder_->push(id)))) return end("interrupted");
    if (filter_.stopped()) return end("stop");
    return true;
  }

  /// Emits what was held back for a stop string or a character that did not come.
  void finish() {
    if (!decoder_ || filter_.stopped()) return;
    emit(filter_.push(decoder_->finish()));
    if (!filter_.stopped()) emit(filter_.finish());
  }

  bool end(const char* reason) {
    result_.finish_reason = reason;
    return false;
  }

 private:
  bool emit(const std::string& text) {
    if (text.empty()) return true;
    result_.text += text;
    return !options_.on_text || options_.on_text(text);
  }

  const GenerateOptions& options_;
  GenerateResult& result_;
  std::vector<int32_t> end_tokens_;
  std::optional<StreamDecoder> decoder_;
  StopFilter filter_;
};

Status check(const Session& session, std::span<const int32_t> prompt, const GenerateOptions& options) {
  if (prompt.empty()) return fail(ErrorCode::usage, "the prompt has no tokens", "give a prompt");
  const auto count = static_cast<int64_t>(prompt.size());
  if (count > session.capacity() - session.length()) {
    const std::string held =
        session.length() == 0 ? std::string() : fmt::format(", {} of them taken", session.length());
    return fail(ErrorCode::limit,
                fmt::format("the prompt has {} tokens, the context {}{}", count, session.capacity(), held),
                "shorten the prompt or raise --context, up to what the model has positions for");
  }
  if (!options.stop.empty() && session.model().tokenizer() == nullptr) {
    return fail(ErrorCode::usage, "stop strings need a tokenizer, the model has no tokenizer.json");
  }
  return {};
}

/// Runs `input` (tokens, or a Prompt); an interrupt is no error here but the end of the answer.
template <class Input>
Result<std::span<const float>> run(Session& session, const Input& input, Answer& answer) {
  auto logits = session.forward_last(input);
  if (logits || logits.error().code != ErrorCode::interrupted) return logits;
  answer.end("interrupted");
  return std::span<const float>();
}

Status decode(Session& session, Sampler& sampler, std::span<const float> logits,
              const GenerateOptions& options, Answer& answer, GenerateResult& result) {
  for (int64_t produced = 1; !logits.empty(); ++produced) {
    if (options.on_logits) options.on_logits(logits);
    HEXLM_ASSIGN(const int32_t id, sampler.sample(logits));
    if (!answer.add(id)) break;
    if (interrupted()) {
      answer.end("interrupted");
      break;
    }
    if (produced == options.max_new_tokens || session.length() == session.capacity()) {
      answer.end("length");
      break;
    }
    const std::span<const int32_t> last(&result.token_ids.back(), 1);
    HEXLM_ASSIGN(logits, run(session, last, answer));
  }
  return {};
}

template <class Input>
Result<GenerateResult> answer_to(Session& session, const Input& input, std::span<const int32_t> prompt,
                                 const GenerateOptions& options) {
  HEXLM_TRY(check(session, prompt, options));
  HEXLM_ASSIGN(Sampler sampler, Sampler::create(options.sampling, session.model().usable_vocabulary()));
  sampler.observe_prompt(options.earlier_tokens);
  sampler.observe_prompt(prompt);

  GenerateResult result;
  result.prompt_tokens = static_cast<int64_t>(options.earlier_tokens.size() + prompt.size());
  Answer answer(session.model().tokenizer(), options, result);
  const auto prefill_start = Clock::now();
  HEXLM_ASSIGN(const std::span<const float> logits, run(session, input, answer));
  result.prefill_s = seconds_since(prefill_start);
  const auto decode_start = Clock::now();
  if (options.max_new_tokens == 0 && !logits.empty()) {
    answer.end("length");
  } else {
    HEXLM_TRY(decode(session, sampler, logits, options, answer, result));
  }
  answer.finish();
  result.decode_s = seconds_since(decode_start);
  return result;
}

}  // namespace

Result<GenerateResult> generate(Session& session, std::span<const int32_t> prompt,
                                const GenerateOptions& options) {
  return answer_to(session, prompt, prompt, options);
}

Result<GenerateResult> generate(Session& session, const Prompt& prompt, const GenerateOptions& options) {
  return answer_to(session, prompt, prompt.tokens, options);
}

}  // namespace hexlm
