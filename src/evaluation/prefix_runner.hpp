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

/// Runs prompts one after the other on a session, those with equal beginnings following each other, and
/// computes what they share once: by truncation where the model's state can be truncated, else from snapshots
/// taken where later prompts part.
class PrefixRunner {
 public:
  /// `prompts` must outlive the runner.
  PrefixRunner(Session& session, std::span<const std::vector<int32_t>> prompts);

  /// Indices of the prompts in the order in which they are to be started.
  const std::vector<size_t>& order() const { return order_; }
  /// Leaves the session holding a beginning of prompt order()[position], without its last token, which must
  /// run to give logits. Positions rise. Returns how many tokens the session holds.
  Result<size_t> start(size_t position);
  /// Tokens that did not have to run, over all prompts.
  int64_t reused_tokens() const { return reused_; }

 private:
  Result<size_t> rewind(size_t shared);
  std::vector<size_t> branches(size_t position, size_t held) const;
  Session* session_;
  std::span<const std::vector<int32_t>> prompts_;
  std::vector<size_t> order_;
  std::vector<size_t> shared_;                             // with the prompt before, by position
  std::vector<std::unique_ptr<StateSnapshot>> snapshots_;  // lengths rise
  int64_t reused_ = 0;
};

}  // namespace hexlm
