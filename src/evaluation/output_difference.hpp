#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.hpp"

namespace hexlm {

/// One position's logits against the reference's.
struct PositionDifference {
  double kl = 0;  ///< Σ p log(p / q), nats; p the reference's softmax, q the other's
  bool same_top1 = false;
  int top5_shared = 0;       ///< how many of the reference's five most likely tokens are among the other's
  double reference_nll = 0;  ///< −log p(next token); 0 when there is none
  double nll = 0;
  bool finite = true;  ///< of the other's logits
};

/// `target` is the next token's id, or negative for none. Double precision throughout.
PositionDifference compare_position(std::span<const float> reference, std::span<const float> other,
                                    int64_t target);

/// Differences of many positions and what they amount to.
class OutputDifference {
 public:
  /// `rows` positions of [rows, vocabulary] logits and their next tokens (negative for none).
  void add(std::span<const float> reference, std::span<const float> other, std::span<const int64_t> targets,
           ThreadPool& pool);

  int64_t positions() const { return static_cast<int64_t>(kl_.size()); }
  /// Positions that have a next token.
  int64_t scored() const { return scored_; }
  bool finite() const { return finite_; }
  const std::vector<double>& kl() const { return kl_; }
  double kl_mean() const;
  double kl_max() const;
  double top1_agreement() const;
  /// Mean share of the reference's five most likely tokens that are among the other's five.
  double top5_agreement() const;
  /// exp(mean −log p) over the scored positions; 0 when there are none.
  double reference_perplexity() const;
  double perplexity() const;

 private:
  std::vector<double> kl_;
  int64_t scored_ = 0;
  int64_t same_top1_ = 0;
  int64_t top5_shared_ = 0;
  double reference_nll_ = 0;
  double nll_ = 0;
  bool finite_ = true;
};

}  // namespace hexlm
