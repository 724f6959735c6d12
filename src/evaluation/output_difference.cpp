#include "evaluation/output_difference.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace hexlm {
namespace {

constexpr size_t top_count = 5;

/// log Σ exp(x)
double log_partition(std::span<const float> logits) {
  const double maximum = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - maximum);
  return std::log(sum) + maximum;
}

/// Ids of the largest logits, largest first, the lower id on ties.
std::vector<size_t> top_ids(std::span<const float> logits) {
  std::vector<size_t> ids;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (ids.size() == top_count && logits[i] <= logits[ids.back()]) continue;
    const auto place =
        std::find_if(ids.begin(), ids.end(), [&](size_t other) { return logits[i] > logits[other]; });
    ids.insert(place, i);
    if (ids.size() > top_count) ids.pop_back();
  }
  return ids;
}

}  // namespace

PositionDifference compare_position(std::span<const float> reference, std::span<const float> other,
                                    int64_t target) {
  PositionDifference difference;
  const double reference_total = log_partition(reference);
  const double other_total = log_partition(other);
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = static_cast<double>(reference[i]) - reference_total;
    const double log_q = static_cast<double>(other[i]) - other_total;
    const double p = std::exp(log_p);
    // A token that the reference rules out contributes nothing.
    if (p > 0) difference.kl += p * (log_p - log_q);
  }
  difference.finite = std::isfinite(difference.kl);
  const std::vector<size_t> top = top_ids(reference);
  const std::vector<size_t> other_top = top_ids(other);
  difference.same_top1 = !top.empty() && !other_top.empty() && top[0] == other_top[0];
  for (const size_t id : top) {
    if (std::find(other_top.begin(), other_top.end(), id) != other_top.end()) ++difference.top5_shared;
  }
  if (target >= 0) {
    difference.reference_nll = reference_total - static_cast<double>(reference[static_cast<size_t>(target)]);
    difference.nll = other_total - static_cast<double>(other[static_cast<size_t>(target)]);
  }
  return difference;
}

void OutputDifference::add(std::span<const float> reference, std::span<const float> other,
                           std::span<const int64_t> targets, ThreadPool& pool) {
  if (targets.empty()) return;
  const size_t vocabulary = reference.size() / targets.size();
  std::vector<PositionDifference> positions(targets.size());
  pool.run(static_cast<int64_t>(targets.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      positions[i] = compare_position(reference.subspan(i * vocabulary, vocabulary),
                                      other.subspan(i * vocabulary, vocabulary), targets[i]);
    }
  });
  for (size_t i = 0; i < targets.size(); ++i) {
    kl_.push_back(positions[i].kl);
    same_top1_ += positions[i].same_top1 ? 1 : 0;
    top5_shared_ += positions[i].top5_shared;
    finite_ = finite_ && positions[i].finite;
    if (targets[i] < 0) continue;
    ++scored_;
    reference_nll_ += positions[i].reference_nll;
    nll_ += positions[i].nll;
  }
}

double OutputDifference::kl_mean() const {
  double sum = 0;
  for (const double value : kl_) sum += value;
  return kl_.empty() ? 0 : sum / static_cast<double>(kl_.size());
}

double OutputDifference::kl_max() const {
  return kl_.empty() ? 0 : *std::max_element(kl_.begin(), kl_.end());
}

double OutputDifference::top1_agreement() const {
  return kl_.empty() ? 0 : static_cast<double>(same_top1_) / static_cast<double>(kl_.size());
}

double OutputDifference::top5_agreement() const {
  return kl_.empty() ? 0 : static_cast<double>(top5_shared_) / static_cast<double>(top_count * kl_.size());
}

double OutputDifference::reference_perplexity() const {
  return scored_ == 0 ? 0 : std::exp(reference_nll_ / static_cast<double>(scored_));
}

double OutputDifference::perplexity() const {
  return scored_ == 0 ? 0 : std::exp(nll_ / static_cast<double>(scored_));
}

}  // namespace hexlm
