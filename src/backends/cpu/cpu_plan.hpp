#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "backends/cpu/low_rank_step.hpp"
#include "backends/cpu/state_set.hpp"
#include "backends/cpu/step.hpp"
#include "backends/cpu/storage.hpp"

namespace hexlm {

/// An i32 graph input whose elements index something: checked before anything runs.
struct IndexCheck {
  size_t input = 0;
  Extent count;
  Extent limit;       ///< indices are least … limit−1
  int64_t least = 0;  ///< −1: where none is an index too
  /// [2, limit]: first row and end of a range for each of `limit` rows, which it holds.
  bool is_ranges = false;
  bool is_table = false;  ///< rows of a parameter (ids), not of a value
  std::string node;
};

/// A step and the node it computes (−1: a table that several nodes share). A node without a step names
/// memory.
struct PlannedStep {
  std::unique_ptr<Step> step;
  int32_t node = -1;
};

/// See Plan. Compiled by `compile_cpu_plan`.
class CpuPlan final : public Plan {
 public:
  Result<std::unique_ptr<StateSet>> create_state() const override;
  Status run(const RunArguments& arguments, StateSet& state) override;
  Status set_low_rank(std::vector<LowRankUpdate> updates) override;
  const std::vector<std::string>& placement() const override { return placement_; }
  uint64_t weight_bytes() const override { return weights_.bytes(); }
  uint64_t arena_bytes() const override { return arena_.size(); }

 private:
  friend class PlanCompiler;
  CpuPlan() = default;
  Status check_sizes(const RunArguments& arguments, const CpuStateSet& state) const;
  Status check_pointers(const RunArguments& arguments) const;
  Status check_indices(const RunArguments& arguments) const;
  Status check_ranges(const IndexCheck& check, const RunArguments& arguments) const;
  void bind(const RunArguments& arguments);
  void copy_outputs(const RunArguments& arguments) const;
  void show(const PlannedStep& step, const RunArguments& arguments) const;

  std::shared_ptr<const Graph> graph_;
  PlanOptions options_;
  const KernelSet* kernels_ = nullptr;
  std::unique_ptr<ThreadPool> pool_;
  PreparedWeights weights_;
  std::shared_ptr<const StateLayout> layout_;
  StoragePlan storage_;
  AlignedBuffer arena_;
  AlignedBuffer scratch_;
  int64_t scratch_stride_ = 0;
  QuantizedBuffers quantized_;
  std::vector<LowRankSlot> low_rank_;  ///< by node index; must not move
  std::vector<void*> slots_;           ///< by value index
  std::vector<Extent> elements_;       ///< by value index
  std::vector<IndexCheck> index_checks_;
  bool has_tokens_ = false;  ///< some value is sized by T: a step of a sequence
  std::vector<PlannedStep> steps_;
  std::vector<std::string> placement_;
};

/// Prepares weights, memory and steps. The graph must have passed CpuBackend::supports.
Result<std::unique_ptr<Plan>> compile_cpu_plan(std::shared_ptr<const Graph> graph,
                                               std::shared_ptr<const WeightSource> weights,
                                               const PlanOptions& options);

}  // namespace hexlm
