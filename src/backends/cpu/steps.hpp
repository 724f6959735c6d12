#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backends/cpu/low_rank_step.hpp"
#include "backends/cpu/step.hpp"
#include "backends/cpu/storage.hpp"

namespace hexlm {

/// Memory that a step of this node needs beside its values, for a plan of these options; 0 for most.
int64_t scratch_bytes(const Graph& graph, const Node& node, const PlanOptions& options);
/// Floats that each worker needs while it runs this node.
int64_t worker_scratch(const Graph& graph, const Node& node);

/// cos and sin of every position of the step, computed once a run for all ropes with the same frequencies.
struct RopeTable {
  op::Rope op;
  ValueId positions;
  int64_t bytes(const PlanOptions& options) const { return options.max_tokens * op.rotary_dim * 4; }
};

/// What making steps draws on.
struct StepMaker {
  const Graph& graph;
  const PlanOptions& options;
  const PreparedWeights& weights;
  QuantizedBuffers& quantized;
  std::vector<void*>& slots;           ///< by value index, bound at run time; must not move
  std::vector<LowRankSlot>& low_rank;  ///< by node index; must not move
  std::byte* scratch = nullptr;        ///< scratch_bytes of the current node
  std::byte* rope_table = nullptr;     ///< of the current node
  size_t node_index = 0;               ///< of the current node
  bool input_is_quantized = false;     ///< an earlier linear left the current node's input in `quantized`

  Binding bind(ValueId id) const { return Binding(&slots[static_cast<size_t>(id.index)]); }
  /// Rows and columns of a value seen as a matrix.
  Extent rows(ValueId id) const {
    const Shape& shape = graph.value(id).shape;
    return *extent_of(shape, 0, shape.size() - 1);
  }
  int64_t columns(ValueId id) const { return graph.value(id).shape.back().value; }
  Extent elements(ValueId id) const { return *extent_of(graph.value(id).shape); }
};

/// The step of one node; nullptr for a node that only names memory (reshape).
std::unique_ptr<Step> make_step(const StepMaker& maker, const Node& node);

std::unique_ptr<Step> make_rope_table_step(const StepMaker& maker, const RopeTable& table, std::byte* memory);

// One a file.
std::unique_ptr<Step> make_linear_step(const StepMaker& maker, const Node& node);
std::unique_ptr<Step> make_rope_step(const StepMaker& maker, const Node& node, const op::Rope& op);
std::unique_ptr<Step> make_attention_step(const StepMaker& maker, const Node& node, const op::Attention& op);
std::unique_ptr<Step> make_convolution_step(const StepMaker& maker, const Node& node,
                                            const op::CausalConvolution& op);
std::unique_ptr<Step> make_delta_net_step(const StepMaker& maker, const Node& node,
                                          const op::GatedDeltaNet& op);
std::unique_ptr<Step> make_experts_step(const StepMaker& maker, const Node& node,
                                        const op::MixtureOfExperts& op);
std::unique_ptr<Step> make_embedding_step(const StepMaker& maker, const Node& node);
std::unique_ptr<Step> make_gather_step(const StepMaker& maker, const Node& node);
/// ReplaceRows and AddRows.
std::unique_ptr<Step> make_index_step(const StepMaker& maker, const Node& node);
std::unique_ptr<Step> make_interpolate_step(const StepMaker& maker, const Node& node);
std::unique_ptr<Step> make_patch_attention_step(const StepMaker& maker, const Node& node,
                                                const op::PatchAttention& op);
std::unique_ptr<Step> make_layer_norm_step(const StepMaker& maker, const Node& node, const op::LayerNorm& op);
std::unique_ptr<Step> make_gelu_step(const StepMaker& maker, const Node& node, const op::Gelu& op);
std::unique_ptr<Step> make_slice_step(const StepMaker& maker, const Node& node, const op::Slice& op);
std::unique_ptr<Step> make_norm_step(const StepMaker& maker, const Node& node, const op::RmsNorm& op);
std::unique_ptr<Step> make_gated_norm_step(const StepMaker& maker, const Node& node,
                                           const op::GatedRmsNorm& op);
/// Add, SiluMultiply and SigmoidMultiply.
std::unique_ptr<Step> make_pair_step(const StepMaker& maker, const Node& node);

int64_t experts_scratch_bytes(const op::MixtureOfExperts& op, int64_t hidden, int64_t tokens);
/// Queries, keys and values of `rows` patches, rotated.
int64_t patch_attention_scratch(const op::PatchAttention& op, const Extent& rows, const PlanOptions& options);

}  // namespace hexlm
