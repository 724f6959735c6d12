#include "evaluation/prefix_runner.hpp"

#include <algorithm>
#include <numeric>

namespace hexlm {
namespace {

/// A snapshot copies the recurrent states, megabytes in large models: running fewer tokens is cheaper.
constexpr size_t least_gain = 8;
/// Snapshots held at a time, which bounds memory; prompts rarely branch more often.
constexpr size_t most_snapshots = 4;

}  // namespace

size_t shared_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t count = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin()).first - a.begin());
}

PrefixRunner::PrefixRunner(Session& session, std::span<const std::vector<int32_t>> prompts)
    : session_(&session), prompts_(prompts), order_(prompts.size()), shared_(prompts.size(), 0) {
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::sort(order_.begin(), order_.end(), [&prompts](size_t a, size_t b) {
    return prompts[a] != prompts[b] ? prompts[a] < prompts[b] : a < b;
  });
  for (size_t i = 1; i < order_.size(); ++i)
    shared_[i] = shared_prefix(prompts[order_[i - 1]], prompts[order_[i]]);
  session.reset();
}

Result<size_t> PrefixRunner::rewind(size_t shared) {
  if (session_->state().can_truncate()) {
    const auto kept = std::min(static_cast<int64_t>(shared), session_->length());
    HEXLM_TRY(session_->state().truncate(kept));
    return static_cast<size_t>(kept);
  }
  while (!snapshots_.empty() && static_cast<size_t>(snapshots_.back()->length()) > shared)
    snapshots_.pop_back();
  if (!snapshots_.empty() && session_->state().restore(*snapshots_.back()))
    return static_cast<size_t>(snapshots_.back()->length());
  // Nothing is shared, or whoever used the session in between has overwritten the cache below the snapshots.
  snapshots_.clear();
  session_->reset();
  return size_t{0};
}

/// Lengths above `held` at which later prompts part from this one, rising.
std::vector<size_t> PrefixRunner::branches(size_t position, size_t held) const {
  std::vector<size_t> lengths;
  size_t shared = prompts_[order_[position]].size() - 1;
  for (size_t i = position + 1; i < order_.size(); ++i) {
    shared = std::min(shared, shared_[i]);
    if (shared < held + least_gain) break;
    if (lengths.empty() || shared + least_gain <= lengths.back()) lengths.push_back(shared);
  }
  std::reverse(lengths.begin(), lengths.end());
  return lengths;
}

Result<size_t> PrefixRunner::start(size_t position) {
  const std::vector<int32_t>& prompt = prompts_[order_[position]];
  if (prompt.empty()) return fail(ErrorCode::usage, "the prompt has no tokens");
  HEXLM_ASSIGN(size_t held, rewind(std::min(shared_[position], prompt.size() - 1)));
  reused_ += static_cast<int64_t>(held);
  if (session_->state().can_truncate()) return held;
  const std::vector<size_t> lengths = branches(position, held);
  for (const size_t length : lengths) {
    // The last place is for where the next prompt parts.
    if (snapshots_.size() + 1 >= most_snapshots && length != lengths.back()) continue;
    if (snapshots_.size() >= most_snapshots) break;
    HEXLM_TRY(session_->forward(std::span(prompt).subspan(held, length - held), 0, nullptr));
    HEXLM_ASSIGN(auto snapshot, session_->state().snapshot());
    snapshots_.push_back(std::move(snapshot));
    held = length;
  }
  return held;
}

}  // namespace hexlm
