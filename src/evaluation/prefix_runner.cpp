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

std::vector<size_t> prefix_order(std::span<const std::vector<int32_t>> prompts) {
  std::vector<size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return prompts[a] < prompts[b]; });
  return order;
}

Result<size_t> PrefixRunner::rewind(size_t shared) {
  if (session_->state().can_truncate()) {
    const auto kept = std::min(static_cast<int64_t>(shared), session_->length());
    HEXLM_TRY(session_->state().truncate(kept));
    return static_cast<size_t>(kept);
  }
  while (!snapshots_.empty() && static_cast<size_t>(snapshots_.back()->length()) > shared)
    snapshots_.pop_back();
  if (snapshots_.empty()) {
    session_->reset();
    return size_t{0};
  }
  if (session_->state().restore(*snapshots_.back())) return static_cast<size_t>(snapshots_.back()->length());
  // Whoever used the session in between has overwritten the cache below the snapshots.
  snapshots_.clear();
  session_->reset();
  return size_t{0};
}

Result<size_t> PrefixRunner::start(std::span<const int32_t> prompt, std::span<const int32_t> next) {
  const size_t most = prompt.empty() ? 0 : prompt.size() - 1;
  HEXLM_ASSIGN(size_t held, rewind(std::min(shared_prefix(previous_, prompt), most)));
  reused_ += static_cast<int64_t>(held);
  previous_.assign(prompt.begin(), prompt.end());
  const size_t parting = std::min({shared_prefix(prompt, next), most, next.empty() ? 0 : next.size() - 1});
  if (session_->state().can_truncate() || parting < held + least_gain || snapshots_.size() >= most_snapshots)
    return held;
  HEXLM_TRY(session_->forward(prompt.subspan(held, parting - held), 0, nullptr));
  HEXLM_ASSIGN(auto snapshot, session_->state().snapshot());
  snapshots_.push_back(std::move(snapshot));
  return parting;
}

}  // namespace hexlm
