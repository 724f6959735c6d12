#include "backends/cpu/cpu_backend.hpp"

#include <fmt/format.h>
#include <new>
#include <variant>

#include "backends/cpu/cpu_plan.hpp"
#include "backends/cpu/extent.hpp"

namespace hexlm {
namespace {

/// Why a value's shape can't be planned; empty when it can.
std::string shape_obstacle(const Value& value) {
  if (value.dtype != DType::f32 && value.dtype != DType::i32) {
    return fmt::format("value {} is {}, expected F32 or I32", value.name, to_string(value.dtype));
  }
  if (!extent_of(value.shape)) {
    return fmt::format("value {} {} has more than one size that changes from step to step", value.name,
                       to_string(value.shape));
  }
  return {};
}

bool advances_state(const Op& op) {
  return std::holds_alternative<op::Attention>(op) || std::holds_alternative<op::CausalConvolution>(op) ||
         std::holds_alternative<op::GatedDeltaNet>(op);
}

bool is_graph_input(const Graph& graph, ValueId id) { return graph.value(id).producer.index < 0; }

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return cpu_backend_name; }

  Support supports(const Graph& graph, const Node& node) const override {
    for (const ValueId id : node.inputs) {
      if (std::string obstacle = shape_obstacle(graph.value(id)); !obstacle.empty()) return {false, obstacle};
    }
    const Value& output = graph.value(node.output);
    if (std::string obstacle = shape_obstacle(output); !obstacle.empty()) return {false, obstacle};
    // States and rope tables advance by the step's tokens, so these ops must see exactly those.
    const bool by_tokens = advances_state(node.op) || std::holds_alternative<op::Rope>(node.op) ||
                           std::holds_alternative<op::MixtureOfExperts>(node.op);
    if (by_tokens && output.shape[0] != tokens_dim) {
      return {false,
              fmt::format("value {} {} does not have one row a token", output.name, to_string(output.shape))};
    }
    if (std::holds_alternative<op::Embedding>(node.op) && !is_graph_input(graph, node.inputs[0])) {
      return {false, "its ids are computed, expected a graph input"};
    }
    if (std::holds_alternative<op::GatherRows>(node.op) && !is_graph_input(graph, node.inputs[1])) {
      return {false, "its row numbers are computed, expected a graph input"};
    }
    const bool by_index =
        std::holds_alternative<op::ReplaceRows>(node.op) || std::holds_alternative<op::AddRows>(node.op);
    if (by_index && !is_graph_input(graph, node.inputs[2])) {
      return {false, "its index is computed, expected a graph input"};
    }
    if (std::holds_alternative<op::InterpolateRows>(node.op) && !is_graph_input(graph, node.inputs[0])) {
      return {false, "its index is computed, expected a graph input"};
    }
    if (std::holds_alternative<op::PatchAttention>(node.op) && !is_graph_input(graph, node.inputs[3])) {
      return {false, "its ranges are computed, expected a graph input"};
    }
    return {};
  }

  Result<std::unique_ptr<Plan>> compile(std::shared_ptr<const Graph> graph,
                                        std::shared_ptr<const WeightSource> weights,
                                        const PlanOptions& options) const override {
    for (const Node& node : graph->nodes()) {
      const Support support = supports(*graph, node);
      if (support.ok) continue;
      return fail(ErrorCode::unsupported, fmt::format("backend cpu can't run node {} ({}): {}", node.name,
                                                      op_name(node.op), support.reason));
    }
    try {
      return compile_cpu_plan(std::move(graph), std::move(weights), options);
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::limit, "out of memory while the plan was compiled");
    }
  }
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace hexlm
