#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evaluation/compare.hpp"
#include "formats/json.hpp"
#include "tokenizer/tokenizer.hpp"

namespace hexlm {

/// What a comparison must keep to; unset limits don't count.
struct CompareLimits {
  std::optional<double> max_perplexity_increase;  ///< other − reference
  std::optional<double> max_kl;                   ///< mean, nats
  std::optional<double> min_top1;
  std::optional<double> min_top5;
};

struct LimitCheck {
  std::string name;  ///< the JSON key that was checked
  double value = 0;
  double limit = 0;
  bool passed = true;
};
/// One check a limit, and one that all outputs are numbers.
std::vector<LimitCheck> check_limits(const CompareResult& result, const CompareLimits& limits);

/// The JSON result of `hexlm compare` (docs/evaluation.md). `tokenizer` may be null.
Json compare_json(const CompareResult& result, const std::vector<LimitCheck>& checks,
                  const Tokenizer* tokenizer);

/// What a perplexity increase of a quantized model usually means; "" when there is nothing to score.
std::string judge_increase(const OutputDifference& outputs);

}  // namespace hexlm
