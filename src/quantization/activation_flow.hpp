#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "quantization/graph_runner.hpp"
#include "quantization/overlay_weights.hpp"

namespace hexlm {

/// One calibration sample of a graph: its sizes and what the graph's inputs are for it, by name. The data
/// belongs to whoever made the sample.
struct FlowSample {
  SymbolValues sizes;
  std::vector<std::pair<std::string, const void*>> inputs;
};

/// All samples on their way through one version of a model: holds their values at one point of the graph and
/// brings them to the next.
class ActivationFlow {
 public:
  ActivationFlow(const Graph& graph, std::shared_ptr<const WeightSource> weights,
                 std::span<const FlowSample> samples, const GraphRunner& runner);

  /// This version's weights: those of the source, until replaced.
  OverlayWeights& weights() { return *weights_; }
  size_t samples() const { return samples_.size(); }
  /// Rows [rows, width] of a value for one sample.
  int64_t rows(size_t sample, ValueId value) const;
  int64_t width(ValueId value) const { return graph_.value(value).shape.back().value; }
  int64_t most_rows(ValueId value) const;
  /// A sample's values at the current point.
  const std::vector<float>& state(size_t sample) const { return states_[sample]; }

  /// Computes `first` from the graph's inputs. Errors, here and below: those of the runner.
  Status start(ValueId first);
  /// Goes on from the current point `from` to `to`.
  Status advance(ValueId from, ValueId to);

  /// The part of the graph between the current point and some values, with this version's weights.
  class Part {
   private:
    friend class ActivationFlow;
    std::unique_ptr<PreparedGraph> graph_;
    std::vector<std::string> inputs_;
    bool from_state_ = false;
  };
  Result<Part> prepare(const std::vector<ValueId>& from, std::span<const ValueId> to) const;
  Status run(Part& part, size_t sample, std::span<float* const> outputs) const;

 private:
  const Graph& graph_;
  std::shared_ptr<OverlayWeights> weights_;
  std::span<const FlowSample> samples_;
  const GraphRunner& runner_;
  SymbolValues most_;
  std::vector<std::vector<float>> states_;
};

}  // namespace hexlm
