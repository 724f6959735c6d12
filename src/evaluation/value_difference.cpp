#include "evaluation/value_difference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace hexlm {
namespace {

/// Elements that one thread sums up at a time: the parts, and so the sums, are the same for any number of
/// threads.
constexpr int64_t block = 1 << 14;

struct Sums {
  double reference_squares = 0;
  double other_squares = 0;
  double products = 0;
  double squared_difference = 0;
  double max_abs = 0;
};

Sums sums_of(const float* a, const float* b, int64_t count) {
  // Independent lanes, so that the compiler can use vectors without reordering anything.
  constexpr int64_t lanes = 8;
  double aa[lanes] = {};
  double bb[lanes] = {};
  double ab[lanes] = {};
  double dd[lanes] = {};
  double most[lanes] = {};
  const auto add = [&](int64_t lane, double x, double y) {
    const double difference = y - x;
    aa[lane] += x * x;
    bb[lane] += y * y;
    ab[lane] += x * y;
    dd[lane] += difference * difference;
    most[lane] = std::max(most[lane], std::abs(difference));
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (int64_t lane = 0; lane < lanes; ++lane) add(lane, a[i + lane], b[i + lane]);
  }
  for (; i < count; ++i) add(0, a[i], b[i]);
  Sums sums;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    sums.reference_squares += aa[lane];
    sums.other_squares += bb[lane];
    sums.products += ab[lane];
    sums.squared_difference += dd[lane];
    sums.max_abs = std::max(sums.max_abs, most[lane]);
  }
  return sums;
}

}  // namespace

void ValueDifference::add(std::span<const float> reference, std::span<const float> other, ThreadPool& pool) {
  const auto count = static_cast<int64_t>(std::min(reference.size(), other.size()));
  std::vector<Sums> parts(static_cast<size_t>((count + block - 1) / block));
  pool.run(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part * block;
      parts[static_cast<size_t>(part)] =
          sums_of(reference.data() + first, other.data() + first, std::min(block, count - first));
    }
  });
  for (const Sums& part : parts) {
    reference_squares_ += part.reference_squares;
    other_squares_ += part.other_squares;
    products_ += part.products;
    squared_difference_ += part.squared_difference;
    max_abs_ = std::max(max_abs_, part.max_abs);
  }
  count_ += count;
  // NaN and infinity survive in sums of squares; of the reference's, the difference is left as one.
  if (!std::isfinite(other_squares_) || !std::isfinite(squared_difference_)) finite_ = false;
}

double ValueDifference::cosine() const {
  if (!finite_) return 0;
  if (squared_difference_ == 0) return 1;
  const double norms = std::sqrt(reference_squares_) * std::sqrt(other_squares_);
  return norms == 0 ? 0 : products_ / norms;
}

double ValueDifference::relative_error() const {
  if (!finite_) return std::numeric_limits<double>::infinity();
  if (squared_difference_ == 0) return 0;
  return std::sqrt(squared_difference_ / reference_squares_);
}

double ValueDifference::snr_db() const { return -20 * std::log10(relative_error()); }

}  // namespace hexlm
