#include "evaluation/logit_difference.hpp"

#include <algorithm>
#include <cmath>

namespace hexlm {
namespace {

/// log Σ exp(x)
double log_sum_exp(std::span<const float> logits) {
  const double maximum = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - maximum);
  return std::log(sum) + maximum;
}

}  // namespace

void LogitDifference::add(std::span<const float> reference, std::span<const float> other) {
  ++rows_;
  const double reference_total = log_sum_exp(reference);
  const double other_total = log_sum_exp(other);
  double kl = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double a = reference[i];
    const double b = other[i];
    if (!std::isfinite(b)) finite_ = false;
    squared_difference_ += (b - a) * (b - a);
    squared_reference_ += a * a;
    const double log_p = a - reference_total;
    kl += std::exp(log_p) * (log_p - (b - other_total));
  }
  kl_ += kl;
  const auto best_reference = std::max_element(reference.begin(), reference.end()) - reference.begin();
  const auto best_other = std::max_element(other.begin(), other.end()) - other.begin();
  if (best_reference == best_other) ++agreeing_;
}

double LogitDifference::relative_error() const {
  if (squared_difference_ == 0) return 0;
  return std::sqrt(squared_difference_ / squared_reference_);
}

double LogitDifference::kl_mean() const { return rows_ == 0 ? 0 : kl_ / static_cast<double>(rows_); }

double LogitDifference::top1_agreement() const {
  return rows_ == 0 ? 0 : static_cast<double>(agreeing_) / static_cast<double>(rows_);
}

}  // namespace hexlm
