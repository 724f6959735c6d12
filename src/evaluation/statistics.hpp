#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hexlm {

/// A share and the range that holds the true one with 95 % confidence.
struct Rate {
  int64_t count = 0;
  int64_t total = 0;
  double value = 0;  ///< count / total; 0 when there is nothing to count
  double low = 0;
  double high = 1;
};

/// Wilson's score interval: (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n), z = 1.96. Unlike p ± z·σ it
/// stays within 0 … 1 and does not collapse at 60 of 60.
Rate wilson(int64_t count, int64_t total);

/// McNemar's exact test of paired outcomes: `only_first` pairs where only the first was right, `only_second`
/// the other way round. The two-sided probability of a split at least as uneven when both are equally good.
double mcnemar(int64_t only_first, int64_t only_second);

/// Linear interpolation between order statistics; `share` 0.5 is the median. 0 for no values, NaN
/// when one is NaN.
double quantile(std::vector<double> values, double share);
double median(std::span<const double> values);
/// 1.4826 · median(|x − median|): a standard deviation that single outliers don't move.
double robust_deviation(std::span<const double> values);

}  // namespace hexlm
