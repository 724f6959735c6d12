#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "evaluation/evaluate.hpp"
#include "runtime/session.hpp"

namespace hexlm {

/// The log likelihood of each choice after the prompt. The session holds the first `held` tokens of `prompt`,
/// fewer than all. `wholes` are the prompt with each choice: a choice's tokens are those behind what its
/// whole shares with the prompt (characters at the border may join into one token). Choices that are one
/// token after the same prompt take one forward pass together. The session is left holding an unspecified
/// beginning.
Result<std::vector<ChoiceScore>> score_choices(Session& session, const Prompt& prompt,
                                               std::span<const Prompt> wholes,
                                               std::span<const std::string> texts, size_t held);

}  // namespace hexlm
