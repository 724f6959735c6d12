#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hexlm {

/// A low-rank addition to one linear node while it runs, unmerged (spec E.3):
///   y = gain · (x Wᵀ + (x · downᵀ) · up) + bias
struct LowRankUpdate {
  std::string node;  ///< the linear's name, "layers.0.self_attn.q_proj"
  int64_t inputs = 0;
  int64_t outputs = 0;
  int64_t rank = 0;
  std::vector<float> down;  ///< [rank, inputs]
  std::vector<float> up;    ///< [rank, outputs], the scaling folded in
  std::vector<float> gain;  ///< [outputs] of DoRA, or empty: 1
};

}  // namespace hexlm
