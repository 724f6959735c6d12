#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.hpp"

namespace hexlm {

/// How far values are from a reference's, over everything added. Sums are in double precision and don't
/// depend on the number of threads.
class ValueDifference {
 public:
  void add(std::span<const float> reference, std::span<const float> other, ThreadPool& pool);

  int64_t count() const { return count_; }
  /// False once a value of either side was NaN or infinite.
  bool finite() const { return finite_; }
  /// Σab / √(Σa² Σb²); 1 when both are all zero.
  double cosine() const;
  /// Signal to noise in decibels, 10 log₁₀(Σa² / Σ(b − a)²); +∞ for equal values, −∞ for values that are
  /// none.
  double snr_db() const;
  double max_abs() const { return max_abs_; }
  /// √(Σ(b − a)² / Σa²)
  double relative_error() const;

 private:
  int64_t count_ = 0;
  bool finite_ = true;
  double reference_squares_ = 0;
  double other_squares_ = 0;
  double products_ = 0;
  double squared_difference_ = 0;
  double max_abs_ = 0;
};

}  // namespace hexlm
