#include "evaluation/degeneration.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>

#include "tokenizer/utf8.hpp"

namespace hexlm {
namespace {

/// A run of one character this long is no ellipsis or emphasis, if it is most of the answer …
constexpr size_t least_run = 16;
/// … and no rule or table border anywhere, whatever stands around it.
constexpr size_t longest_rule = 160;
/// Sequences up to this many tokens are looked for; longer ones don't repeat within usual answers.
constexpr size_t longest_period = 128;
/// Tokens that a loop must cover, and times it must repeat: "ha ha ha ha" is none yet.
constexpr size_t least_loop_tokens = 24;
constexpr size_t least_repeats = 4;
constexpr size_t least_replacements = 3;

constexpr char32_t replacement = 0xFFFD;

struct CharacterFacts {
  size_t count = 0;
  size_t longest_run = 0;
  std::string run_character;
  size_t replacements = 0;
  bool blank = true;
};

CharacterFacts look_at(std::string_view text) {
  std::string valid;
  append_lossy_utf8(text, valid);
  CharacterFacts facts;
  size_t run = 0;
  char32_t previous = 0;
  for (size_t at = 0; at < valid.size();) {
    const Character character = read_character(valid.data() + at);
    run = character.code_point == previous ? run + 1 : 1;
    previous = character.code_point;
    if (run > facts.longest_run) {
      facts.longest_run = run;
      facts.run_character = valid.substr(at, character.length);
    }
    if (character.code_point == replacement) ++facts.replacements;
    if (character.code_point > ' ') facts.blank = false;
    ++facts.count;
    at += character.length;
  }
  return facts;
}

struct Loop {
  size_t period = 0;
  size_t length = 0;  ///< tokens from the first repetition to the last, both included
  size_t end = 0;     ///< one past the last token
  size_t repeats() const { return period == 0 ? 0 : length / period; }
};

/// The longest stretch that repeats with each period: runs of tokens equal to the one `period` before.
Loop longest_loop(std::span<const int32_t> tokens) {
  Loop best;
  const size_t most = std::min(longest_period, tokens.size() / 2);
  for (size_t period = 1; period <= most; ++period) {
    size_t equal = 0;
    for (size_t i = period; i < tokens.size(); ++i) {
      equal = tokens[i] == tokens[i - period] ? equal + 1 : 0;
      // At equal length the shorter period is the loop: a run of one token repeats with every period.
      if (equal >= period && equal + period > best.length) best = {period, equal + period, i + 1};
    }
  }
  return best;
}

DegenerationFinding find_loop(const AnswerFacts& facts) {
  const Loop loop = longest_loop(facts.tokens);
  if (loop.length < least_loop_tokens || loop.repeats() < least_repeats) return {};
  const bool most = 2 * loop.length >= facts.tokens.size();
  const bool until_cut = facts.ended_by_length && loop.end == facts.tokens.size();
  if (!most && !until_cut) return {};
  return {Degeneration::token_loop, fmt::format("{} token{} repeated {} times", loop.period,
                                                loop.period == 1 ? "" : "s", loop.repeats())};
}

DegenerationFinding find_text_signs(const AnswerFacts& facts, const CharacterFacts& characters) {
  const bool most = 2 * characters.longest_run >= characters.count;
  if ((characters.longest_run >= least_run && most) || characters.longest_run > longest_rule) {
    return {Degeneration::character_run,
            fmt::format("\"{}\" {} times in a row", as_one_line(characters.run_character),
                        characters.longest_run)};
  }
  if (DegenerationFinding loop = find_loop(facts)) return loop;
  // An answer cut off in the middle of a character ends with one.
  if (characters.replacements >= least_replacements) {
    return {Degeneration::replacement_characters,
            fmt::format("{} of {} characters are no text", characters.replacements, characters.count)};
  }
  return {};
}

}  // namespace

std::string_view to_string(Degeneration degeneration) {
  switch (degeneration) {
    case Degeneration::none:
      return "";
    case Degeneration::non_finite_logits:
      return "non_finite_logits";
    case Degeneration::flat_logits:
      return "flat_logits";
    case Degeneration::empty_answer:
      return "empty_answer";
    case Degeneration::character_run:
      return "character_run";
    case Degeneration::token_loop:
      return "token_loop";
    case Degeneration::replacement_characters:
      return "replacement_characters";
    case Degeneration::same_answer:
      return "same_answer";
  }
  return "";
}

void LogitWatch::see(std::span<const float> logits) {
  if (logits.size() < 2) return;
  bool flat = true;
  bool finite = true;
  for (const float logit : logits) {
    flat = flat && logit == logits[0];
    // −infinity is how models and samplers rule a token out.
    finite = finite && !std::isnan(logit) && !(std::isinf(logit) && logit > 0);
  }
  flat_ = flat_ || flat;
  non_finite_ = non_finite_ || !finite;
}

DegenerationFinding find_degeneration(const AnswerFacts& facts) {
  if (facts.watch != nullptr && facts.watch->non_finite())
    return {Degeneration::non_finite_logits, "a logit is NaN or infinite"};
  if (facts.watch != nullptr && facts.watch->flat())
    return {Degeneration::flat_logits, "all logits are equal"};
  if (facts.tokens.empty()) return {};
  const CharacterFacts characters = look_at(facts.text);
  if (facts.has_text && characters.blank && !facts.ended_by_length)
    return {Degeneration::empty_answer,
            fmt::format("the answer ended after {} token{} without text", facts.tokens.size(),
                        facts.tokens.size() == 1 ? "" : "s")};
  return find_text_signs(facts, characters);
}

DegenerationFinding find_degeneration(const GenerateResult& answer, const LogitWatch* watch, bool has_text) {
  AnswerFacts facts;
  facts.tokens = answer.token_ids;
  facts.text = answer.text;
  facts.has_text = has_text;
  facts.ended_by_length = answer.finish_reason != "stop";
  facts.watch = watch;
  return find_degeneration(facts);
}

std::string describe(const DegenerationFinding& finding) {
  return fmt::format("the answer is degenerate ({}): {}", to_string(finding.kind), finding.detail);
}

DegenerationFinding find_same_answer(std::span<const PromptAnswer> answers) {
  constexpr size_t least_prompts = 5;
  std::set<std::string_view> prompts;
  std::map<std::string_view, std::set<std::string_view>> prompts_of;
  std::map<std::string_view, std::set<std::string_view>> expected_of;
  for (const PromptAnswer& answer : answers) {
    prompts.insert(answer.prompt);
    prompts_of[answer.answer].insert(answer.prompt);
    expected_of[answer.answer].insert(answer.expected);
  }
  if (prompts.size() < least_prompts) return {};
  for (const auto& [answer, of] : prompts_of) {
    if (5 * of.size() < 4 * prompts.size() || expected_of[answer].size() < 2) continue;
    return {Degeneration::same_answer,
            fmt::format("{} of {} different prompts got the same answer", of.size(), prompts.size())};
  }
  return {};
}

}  // namespace hexlm
