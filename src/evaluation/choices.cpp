#include "evaluation/choices.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "evaluation/perplexity.hpp"
#include "evaluation/prefix_runner.hpp"

namespace hexlm {
namespace {

/// A choice's tokens, and the tokens that run to predict them.
struct Continuation {
  Prompt inputs;
  std::span<const int32_t> targets;
};

/// No token of a text model.
constexpr int32_t no_image_token = -1;

Result<std::vector<double>> likelihoods(Session& session, std::span<const Continuation> group) {
  std::vector<double> sums(group.size(), 0);
  const auto wanted = static_cast<int64_t>(group[0].targets.size());
  const auto vocabulary = static_cast<size_t>(session.model().config().text.vocabulary_size);
  const auto first_wanted = static_cast<int64_t>(group[0].inputs.tokens.size()) - wanted;
  HEXLM_TRY(session.forward(
      group[0].inputs, wanted, [&](int64_t first, int64_t rows, std::span<const float> logits) -> Status {
        for (int64_t row = 0; row < rows; ++row) {
          const auto target = static_cast<size_t>(first + row - first_wanted);
          const auto values = logits.subspan(static_cast<size_t>(row) * vocabulary, vocabulary);
          for (size_t i = 0; i < group.size(); ++i)
            sums[i] -= negative_log_likelihood(values, group[i].targets[target]);
        }
        return {};
      }));
  return sums;
}

}  // namespace

Result<std::vector<ChoiceScore>> score_choices(Session& session, const Prompt& prompt,
                                               std::span<const Prompt> wholes,
                                               std::span<const std::string> texts, size_t held) {
  const auto& vision = session.model().config().vision;
  const int32_t image_token = vision ? vision->image_token : no_image_token;
  // Everything that all choices have in common but the token that predicts the first difference.
  size_t common = prompt.tokens.size();
  std::vector<size_t> starts;
  for (const Prompt& whole : wholes) {
    starts.push_back(shared_prefix(prompt.tokens, whole.tokens));
    if (starts.back() == whole.tokens.size() || starts.back() == 0)
      return fail(ErrorCode::bad_input,
                  fmt::format("the choice \"{}\" adds no token to the prompt", texts[starts.size() - 1]));
    common = std::min(common, starts.back());
  }
  const auto base = whole_prefix(prompt, static_cast<int64_t>(common) - 1, image_token);
  if (base < static_cast<int64_t>(held)) {
    // A choice joins the prompt's last token: rare, so what is held is computed again.
    session.reset();
    held = 0;
  }
  HEXLM_ASSIGN(const Prompt head, take_prefix(prompt, base, image_token));
  HEXLM_ASSIGN(const Prompt rest, drop_prefix(head, static_cast<int64_t>(held), image_token));
  if (!rest.tokens.empty()) HEXLM_TRY(session.forward(rest, 0, nullptr));
  HEXLM_ASSIGN(const auto snapshot, session.state().snapshot());
  std::vector<ChoiceScore> scores(wholes.size());
  std::vector<bool> done(wholes.size(), false);
  for (size_t i = 0; i < wholes.size(); ++i) {
    if (done[i]) continue;
    std::vector<Continuation> group;
    std::vector<size_t> members;
    for (size_t j = i; j < wholes.size(); ++j) {
      if (done[j]) continue;
      const std::span<const int32_t> whole = wholes[j].tokens;
      HEXLM_ASSIGN(const Prompt but_last,
                   take_prefix(wholes[j], static_cast<int64_t>(whole.size()) - 1, image_token));
      Continuation continuation{{}, whole.subspan(starts[j])};
      HEXLM_ASSIGN(continuation.inputs, drop_prefix(but_last, base, image_token));
      const bool same = group.empty() || (group[0].inputs.tokens == continuation.inputs.tokens &&
                                          group[0].targets.size() == continuation.targets.size());
      if (!same) continue;
      group.push_back(std::move(continuation));
      members.push_back(j);
      done[j] = true;
    }
    HEXLM_TRY(session.state().restore(*snapshot));
    HEXLM_ASSIGN(const std::vector<double> sums, likelihoods(session, group));
    for (size_t k = 0; k < members.size(); ++k) {
      scores[members[k]] = {sums[k], sums[k] / static_cast<double>(texts[members[k]].size())};
    }
  }
  HEXLM_TRY(session.state().restore(*snapshot));
  return scores;
}

}  // namespace hexlm
