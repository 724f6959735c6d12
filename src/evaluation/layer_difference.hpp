#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "base/error.hpp"
#include "evaluation/value_difference.hpp"
#include "graph/graph.hpp"
#include "runtime/model.hpp"

namespace hexlm {

/// One node of two models. `local`: the other model's node on the reference's inputs, its own error alone.
/// `global`: with the other model's own inputs, what has built up so far.
struct NodeDifference {
  std::string name;
  std::string op;
  ValueDifference local;
  ValueDifference global;
  /// The local signal to noise that the node's stored weights explain, in decibels.
  double expected_snr_db = 0;
  /// Nodes that only rename or cut what is there have no error of their own.
  bool compared = true;

  /// How many decibels worse than explained; nodes are ranked by it.
  double excess_db() const;
};

/// A node's own error is called a divergence when it is this much above what its weights explain: 6 dB is
/// twice the error.
inline constexpr double divergence_margin_db = 6;

/// Equal for one model, two packages of it, or a checkpoint and its package. Errors: bad_input naming the
/// first node that differs.
Status check_same_graph(const Graph& reference, const Graph& other);

/// Collects the reference's values, and compares the other model's with them: one call of `forward` at a
/// time, so that memory is bounded by the tokens of one call.
class LayerComparison {
 public:
  /// `precision` is the lower of the two, `cache` the coarser: what they make differ is no divergence.
  LayerComparison(const Model& reference, const Model& other, Precision precision, CacheType cache,
                  int threads);

  /// Tokens of one call for which all values together take at most `bytes`; at least 1.
  int64_t tokens_within(int64_t bytes) const;
  /// Observers of the three passes over the same tokens, in this order.
  Observer& record();
  Observer& compare_global();
  Observer& compare_local();

  const std::vector<NodeDifference>& nodes() const { return nodes_; }
  /// Indices of nodes, the most suspicious first.
  std::vector<size_t> culprits() const;
  /// The first node whose own error its weights don't explain.
  std::optional<size_t> first_divergence() const;

 private:
  class Recorder;
  class Comparer;
  void begin_pass();
  std::vector<NodeDifference> nodes_;
  std::vector<int64_t> bytes_per_token_;
  std::vector<std::vector<float>> recorded_;  // by node
  std::vector<size_t> position_;              // by node: floats of the pass so far
  ThreadPool pool_;
  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<Observer> recorder_;
  std::unique_ptr<Observer> global_;
  std::unique_ptr<Observer> local_;
};

}  // namespace hexlm
