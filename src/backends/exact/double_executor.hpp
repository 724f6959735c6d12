#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/thread_pool.hpp"
#include "formats/codec.hpp"
#include "graph/graph.hpp"

namespace hexlm {

/// Runs a graph once, from empty states, in double precision, as the ops are defined: what a backend's plan
/// is compared with, in tests and by `export --verify`. It shares no code with the kernels. Matrices are
/// decoded a few rows at a time and released, so that memory is bounded by the values, whatever the model's
/// size.
class DoubleExecutor {
 public:
  struct Options {
    int threads = 1;
    bool keep_values = true;  ///< else a value is dropped after its last use; graph outputs stay
  };
  DoubleExecutor(const Graph& graph, const WeightSource& weights, const Options& options)
      : graph_(graph),
        weights_(weights),
        options_(options),
        pool_(std::make_unique<ThreadPool>(options.threads)) {}
  DoubleExecutor(const Graph& graph, const WeightSource& weights)
      : DoubleExecutor(graph, weights, Options{}) {}
  /// `inputs` in the order of the graph's inputs; i32 inputs as doubles. Errors: what finding a weight
  /// reports; runtime for another number of inputs; interrupted.
  Status run(const SymbolValues& symbols, const std::vector<std::vector<double>>& inputs);
  /// A value of the last run, rounded to float.
  std::vector<float> value(ValueId id) const;

 private:
  /// A weight, or an empty one after an error, which is remembered.
  WeightView find(ParameterId id);
  /// A small one whole: a bias, a norm, convolution taps.
  std::vector<double> small(ParameterId id);
  /// x [n, columns] times the weight's transpose.
  std::vector<double> project(const std::vector<double>& x, ParameterId id);
  void drop_after(size_t node);
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
  Options options_;
  std::unique_ptr<ThreadPool> pool_;
  SymbolValues symbols_;
  std::optional<Error> error_;
  std::map<int32_t, size_t> last_use_;  ///< node after which a value is not needed
  std::map<int32_t, std::vector<double>> values_;
};

}  // namespace hexlm
