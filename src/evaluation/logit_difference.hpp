#pragma once

#include <cstdint>
#include <span>

namespace hexlm {

/// How far one model's logits are from a reference's, summed row by row.
class LogitDifference {
 public:
  /// One position: logits of the reference and of the other model over the same vocabulary.
  void add(std::span<const float> reference, std::span<const float> other);

  int64_t rows() const { return rows_; }
  /// False once a logit of the other model was NaN or infinite.
  bool finite() const { return finite_; }
  /// ‖other − reference‖ / ‖reference‖ over all rows.
  double relative_error() const;
  /// Mean over rows of Σ p log(p / q), in nats; p the reference's softmax, q the other's.
  double kl_mean() const;
  /// Share of rows whose largest logit is at the same id.
  double top1_agreement() const;

 private:
  int64_t rows_ = 0;
  int64_t agreeing_ = 0;
  bool finite_ = true;
  double squared_difference_ = 0;
  double squared_reference_ = 0;
  double kl_ = 0;
};

}  // namespace hexlm
