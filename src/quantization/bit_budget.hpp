#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "formats/codec.hpp"
#include "quantization/export.hpp"
#include "quantization/graph_runner.hpp"

namespace hexlm {

/// What one tensor costs in one codec.
struct BitOption {
  Codec codec;
  uint64_t bits = 0;  ///< stored, scales included
  double damage = 0;  ///< expected KL divergence from the float model, nats a token
};

/// One line of the table: a tensor's options and the one that was chosen.
struct BitChoice {
  std::string name;
  int64_t elements = 0;
  double sensitivity = 0;  ///< measured KL divergence with this tensor alone at 3 bits
  std::vector<BitOption> options;
  size_t chosen = 0;
};

/// Takes one option a tensor so that their bits stay within `budget` and the damage together is least:
/// dynamic programming over the budget in steps of its 8192th part. Errors: usage when even the smallest
/// options exceed it.
Status choose_options(std::vector<BitChoice>& choices, uint64_t budget);

/// Measures how much each linear of the decoder layers matters and spends `target_bits` a weight on them,
/// scales included. Each tensor alone is rounded to 3 bits and the KL divergence of the next-token
/// distributions from the float model's measured on calibration sequences; other widths (2 to 8 bits in the
/// group size of the plan's linears) are taken to do damage in proportion to their squared error. Errors:
/// usage for a target below what 2 bits take; the runner's.
Result<std::vector<BitChoice>> spend_bits(const ExportPlan& plan,
                                          const std::shared_ptr<const WeightSource>& weights,
                                          const std::vector<std::vector<int32_t>>& sequences,
                                          const GraphRunner& runner, double target_bits, int threads,
                                          const ProgressCallback& progress);

}  // namespace hexlm
