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
  std::span<const int32_t> inputs;
  std::span<const int32_t> targets;
};

Result<std::vector<double>> likelihoods(Session& session, std::span<const Continuation> group) {
  std::vector<double> sums(group.size(), 0);
  const auto wanted = static_cast<int64_t>(group[0].targets.size());
  const auto vocabulary = static_cast<size_t>(session.model().config().text.vocabulary_size);
  const auto first_wanted = static_cast<int64_t>(group[0].inputs.size()) - wanted;
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

Result<std::vector<ChoiceScore>> score_choices(Session& session, std::span<const int32_t> prompt,
                                               std::span<const std::vector<int32_t>> wholes,
                                               std::span<const std::string> texts, size_t held) {
  // Everything that all choices have in common but the token that predicts the first difference.
  size_t common = prompt.size();
  std::vector<size_t> starts;
  for (const std::vector<int32_t>& whole : wholes) {
    starts.push_back(shared_prefix(prompt, whole));
    if (starts.back() == whole.size() || starts.back() == 0)
      return fail(ErrorCode::bad_input,
                  fmt::format("the choice \"{}\" adds no token to the prompt", texts[starts.size() - 1]));
    common = std::min(common, starts.back());
  }
  const size_t base = common - 1;
  if (base > held) {
    HEXLM_TRY(session.forward(prompt.subspan(held, base - held), 0, nullptr));
    held = base;
  } else if (held > base) {
    // A choice joins the prompt's last token: rare, so what is held is computed again.
    session.reset();
    HEXLM_TRY(session.forward(prompt.first(base), 0, nullptr));
  }
  HEXLM_ASSIGN(const auto snapshot, session.state().snapshot());
  std::vector<ChoiceScore> scores(wholes.size());
  std::vector<bool> done(wholes.size(), false);
  for (size_t i = 0; i < wholes.size(); ++i) {
    if (done[i]) continue;
    std::vector<Continuation> group;
    std::vector<size_t> members;
    for (size_t j = i; j < wholes.size(); ++j) {
      const std::span<const int32_t> whole = wholes[j];
      const Continuation continuation{whole.subspan(base, whole.size() - 1 - base), whole.subspan(starts[j])};
      const bool same = group.empty() || (std::ranges::equal(group[0].inputs, continuation.inputs) &&
                                          group[0].targets.size() == continuation.targets.size());
      if (done[j] || !same) continue;
      group.push_back(continuation);
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
