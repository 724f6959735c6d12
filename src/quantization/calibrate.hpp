#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "formats/codec.hpp"
#include "quantization/export.hpp"
#include "quantization/graph_runner.hpp"
#include "quantization/method.hpp"
#include "quantization/work_folder.hpp"

namespace hexlm {

/// Settings of a calibrated method.
struct LayerOptions {
  Method method = Method::best;
  double damping = 0.01;
  int threads = 1;
  /// Told, before the first layer, how many seconds the layers will take (gptq and best).
  std::function<void(double seconds)> on_estimate;
};

/// The constants of the calibrated methods, for the manifest.
Json method_parameters();

/// Quantizes the linears of every decoder layer in turn, on activations of the model quantized so far, and
/// leaves them in `work`. Holds the hidden states of all sequences (for `best` those of the float model too)
/// and one layer's statistics. Layers that `work` already has are only run. Errors: bad_input naming the
/// layer for activations or Hessians that can't be used; interrupted; the runner's.
Status quantize_layers(const ExportPlan& plan, std::shared_ptr<const WeightSource> weights,
                       const std::vector<std::vector<int32_t>>& sequences, const GraphRunner& runner,
                       const LayerOptions& options, WorkFolder& work, const ProgressCallback& progress);

}  // namespace hexlm
