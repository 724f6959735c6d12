#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/error.hpp"
#include "formats/codec.hpp"
#include "graph/graph.hpp"

namespace hexlm {

/// A graph that is ready to run: calibration's view of a backend's plan.
class PreparedGraph {
 public:
  virtual ~PreparedGraph() = default;
  /// Inputs that `run` takes.
  virtual size_t input_count() const = 0;
  /// Runs one whole sample from an empty state. Inputs and outputs in the graph's order, sizes as its shapes
  /// say with `symbols`. Errors: those of the backend.
  virtual Status run(const SymbolValues& symbols, std::span<const void* const> inputs,
                     std::span<float* const> outputs) = 0;
};

/// Runs graphs for calibration in float arithmetic. Quantization may not know backends, so whoever calls it
/// brings one (runtime/calibration_runner.hpp).
class GraphRunner {
 public:
  virtual ~GraphRunner() = default;
  /// Prepares a graph for samples of at most these sizes. Errors: those of the backend.
  virtual Result<std::unique_ptr<PreparedGraph>> prepare(std::shared_ptr<const Graph> graph,
                                                         std::shared_ptr<const WeightSource> weights,
                                                         const SymbolValues& most) const = 0;
};

}  // namespace hexlm
