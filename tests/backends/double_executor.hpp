#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "formats/codec.hpp"
#include "graph/graph.hpp"

namespace hexlm {

/// Runs a graph once, from empty states, in double precision, every value in memory of its own: what the CPU
/// plan and its memory sharing are compared with. Nothing of src/kernels or src/backends is used.
class DoubleExecutor {
 public:
  DoubleExecutor(const Graph& graph, const WeightSource& weights) : graph_(graph), weights_(weights) {}
  /// `inputs` in the order of the graph's inputs; i32 inputs as doubles.
  void run(const SymbolValues& symbols, const std::vector<std::vector<double>>& inputs);
  /// A value of the last run, rounded to float.
  std::vector<float> value(ValueId id) const;

 private:
  struct Matrix {
    int64_t rows = 0;
    int64_t columns = 0;
    std::vector<double> values;
    const double* row(int64_t i) const { return values.data() + i * columns; }
  };
  const Matrix& parameter(ParameterId id);
  const std::vector<double>& in(const Node& node, size_t i) const { return values_.at(node.inputs[i].index); }
  int64_t last(ValueId id) const { return graph_.value(id).shape.back().value; }

  std::vector<double> apply(const Node& node, const op::Embedding& op);
  std::vector<double> apply(const Node& node, const op::Linear& op);
  std::vector<double> apply(const Node& node, const op::RmsNorm& op);
  std::vector<double> apply(const Node& node, const op::GatedRmsNorm& op);
  std::vector<double> apply(const Node& node, const op::Reshape& op);
  std::vector<double> apply(const Node& node, const op::Slice& op);
  std::vector<double> apply(const Node& node, const op::Rope& op);
  std::vector<double> apply(const Node& node, const op::Attention& op);
  std::vector<double> apply(const Node& node, const op::Add& op);
  std::vector<double> apply(const Node& node, const op::SiluMultiply& op);
  std::vector<double> apply(const Node& node, const op::SigmoidMultiply& op);
  std::vector<double> apply(const Node& node, const op::CausalConvolution& op);
  std::vector<double> apply(const Node& node, const op::GatedDeltaNet& op);
  std::vector<double> apply(const Node& node, const op::MixtureOfExperts& op);
  std::vector<double> apply(const Node& node, const op::GatherRows& op);
  std::vector<double> apply(const Node& node, const op::ReplaceRows& op);
  std::vector<double> apply(const Node& node, const op::AddRows& op);
  std::vector<double> apply(const Node& node, const op::LayerNorm& op);
  std::vector<double> apply(const Node& node, const op::Gelu& op);
  std::vector<double> apply(const Node& node, const op::InterpolateRows& op);
  std::vector<double> apply(const Node& node, const op::PatchAttention& op);

  const Graph& graph_;
  const WeightSource& weights_;
  SymbolValues symbols_;
  std::map<int32_t, Matrix> parameters_;
  std::map<int32_t, std::vector<double>> values_;
};

}  // namespace hexlm
