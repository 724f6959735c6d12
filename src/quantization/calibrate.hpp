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
#include "quantization/statistics_file.hpp"
#include "quantization/work_folder.hpp"

namespace hexlm {

/// The constants of the calibrated methods, for the manifest.
Json method_parameters();

/// Quantizes, layer after layer, the linears of the vision tower and of the decoder whose method looks at
/// activations of the model quantized so far, and leaves them in `work`. Holds the values of all samples (for
/// `best` those of the float model too) and one layer's statistics. Layers that `work` already has are only
/// run. With `saved` nothing is run at all: the statistics are taken from there; `saving` gets those that are
/// computed. Either may be null. Errors: bad_input naming the layer for activations or Hessians that can't be
/// used; interrupted; the runner's and those of the statistics' file.
Status quantize_layers(const ExportOptions& options, const ExportPlan& plan,
                       const std::shared_ptr<const WeightSource>& weights, StatisticsReader* saved,
                       StatisticsWriter* saving, WorkFolder& work, const ProgressCallback& progress);

/// The statistics that `quantize_layers` computes, in its order.
Result<std::vector<StageStatistics>> planned_statistics(const ExportOptions& options, const ExportPlan& plan);

}  // namespace hexlm
