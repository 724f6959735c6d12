#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "runtime/session.hpp"

namespace hexlm {

/// How many leading tokens two prompts share.
size_t shared_prefix(std::span<const int32_t> a, std::span<const int32_t> b);

/// The order in which prompts are run so that those with equal beginnings follow each other.
std::vector<size_t> prefix_order(std::span<const std::vector<int32_t>> prompts);

/// Runs prompts one after the other on a session and computes what they share once: by truncation where the
/// model's state can be truncated, else from snapshots taken where the next prompt parts.
class PrefixRunner {
 public:
  explicit PrefixRunner(Session& session) : session_(&session) {}

  /// Leaves the session holding a beginning of `prompt`, without its last token, which must run to give
  /// logits. `next` is the prompt that will follow (empty for none). Returns how many tokens it holds.
  Result<size_t> start(std::span<const int32_t> prompt, std::span<const int32_t> next);
  /// Tokens that did not have to run, over all prompts.
  int64_t reused_tokens() const { return reused_; }

 private:
  Result<size_t> rewind(size_t shared);
  Session* session_;
  std::vector<int32_t> previous_;
  std::vector<std::unique_ptr<StateSnapshot>> snapshots_;  // lengths rise
  int64_t reused_ = 0;
};

}  // namespace hexlm
