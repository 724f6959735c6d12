#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/thread_pool.hpp"

namespace hexlm {

/// What calibration knows about the inputs x [columns] of the linears of one stage: means over its tokens.
/// x is the input in the model quantized so far, f the same token's input in the float model.
struct InputMoments {
  int64_t columns = 0;
  int64_t tokens = 0;
  std::vector<double> gram;      ///< [columns, columns], x xᵀ
  std::vector<double> cross;     ///< [columns, columns], f xᵀ; empty when only x was seen
  std::vector<double> mean_abs;  ///< [columns]
  std::vector<double> max_abs;   ///< [columns]
  /// The greatest |x| of every second sequence and of the others: far apart, the text is too little or too
  /// mixed.
  double half_max[2] = {0, 0};

  /// The larger of the two halves' ranges over the smaller.
  double range_ratio() const;
};

/// Sums moments sequence by sequence. Every sum is over tokens in their order, split over columns: the same
/// bits whatever the number of threads.
class MomentSums {
 public:
  MomentSums(int64_t columns, bool with_cross);
  /// Adds `tokens` inputs [tokens, columns]; `float_x` may be null without cross moments.
  void add(const float* x, const float* float_x, int64_t tokens, ThreadPool& pool);
  /// Divides by the tokens and hands the moments over. Errors: bad_input naming `what` for inputs that are
  /// not finite, all zero, or none.
  Result<InputMoments> finish(const std::string& what) &&;

 private:
  InputMoments sums_;
  int64_t sequences_ = 0;
};

}  // namespace hexlm
