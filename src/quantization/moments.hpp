#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/thread_pool.hpp"

namespace hexlm {

/// What calibration knows about the inputs x [columns] of the linears of one stage: means over its tokens.
/// x is the input in the model quantized so far, f the same token's input in the float model. All are float32
/// values, so that saved statistics are what was computed.
struct InputMoments {
  int64_t columns = 0;
  int64_t tokens = 0;
  std::vector<double> gram;      ///< [columns, columns], x xᵀ
  std::vector<double> cross;     ///< [columns, columns], f xᵀ; empty when only x was seen
  std::vector<double> residual;  ///< [outputs, columns], d xᵀ; see TokenBatch::residual
  std::vector<double> mean_abs;  ///< [columns]
  /// The greatest |x| of every second sequence and of the others: far apart, the text is too little or too
  /// mixed.
  double half_max[2] = {0, 0};

  /// The larger of the two halves' ranges over the smaller.
  double range_ratio() const;
};

/// The tokens of one sample.
struct TokenBatch {
  int64_t tokens = 0;
  const float* x = nullptr;        ///< [tokens, columns]
  const float* float_x = nullptr;  ///< the same, f
  /// [tokens, outputs], d: by how much the float model's residual stream is ahead of the quantized one's, for
  /// linears that add to it. May be null.
  const float* residual = nullptr;
  /// [tokens]: what a token's values are multiplied with before its products are added; null for 1.
  const float* factors = nullptr;
};

/// Sums moments sample by sample. Every sum is over tokens in their order, split over columns: the same
/// bits whatever the number of threads.
class MomentSums {
 public:
  /// `outputs` is 0 without residuals.
  MomentSums(int64_t columns, bool with_cross, int64_t outputs = 0);
  void add(const TokenBatch& batch, ThreadPool& pool);
  /// Divides by the tokens and hands the moments over. Errors: bad_input naming `what` for inputs that are
  /// not finite, all zero, or none.
  Result<InputMoments> finish(const std::string& what) &&;

 private:
  void add_range(const TokenBatch& batch);

  InputMoments sums_;
  int64_t outputs_ = 0;
  int64_t sequences_ = 0;
};

}  // namespace hexlm
