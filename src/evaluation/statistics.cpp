#include "evaluation/statistics.hpp"

#include <algorithm>
#include <cmath>

namespace hexlm {

Rate wilson(int64_t count, int64_t total) {
  Rate rate;
  rate.count = count;
  rate.total = total;
  if (total <= 0) return rate;
  constexpr double z = 1.959963984540054;  // the normal distribution's 97.5 % point
  const auto n = static_cast<double>(total);
  const double p = static_cast<double>(count) / n;
  const double center = p + z * z / (2 * n);
  const double margin = z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  const double scale = 1 + z * z / n;
  rate.value = p;
  rate.low = std::max(0.0, (center - margin) / scale);
  rate.high = std::min(1.0, (center + margin) / scale);
  return rate;
}

double mcnemar(int64_t only_first, int64_t only_second) {
  const int64_t n = only_first + only_second;
  if (n == 0) return 1;
  // P(X ≤ k) of the binomial distribution with p = ½, in logarithms: 2ⁿ overflows soon.
  const int64_t k = std::min(only_first, only_second);
  double tail = 0;
  for (int64_t i = 0; i <= k; ++i) {
    const double log_ways = std::lgamma(static_cast<double>(n) + 1) -
                            std::lgamma(static_cast<double>(i) + 1) -
                            std::lgamma(static_cast<double>(n - i) + 1);
    tail += std::exp(log_ways - static_cast<double>(n) * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  for (const double value : values) {
    if (std::isnan(value)) return value;  // there is no order among such
  }
  std::sort(values.begin(), values.end());
  const double position = std::clamp(share, 0.0, 1.0) * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

double median(std::span<const double> values) { return quantile({values.begin(), values.end()}, 0.5); }

double robust_deviation(std::span<const double> values) {
  const double middle = median(values);
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return 1.4826 * quantile(std::move(distances), 0.5);
}

}  // namespace hexlm
