#pragma once

#include <memory>
#include <vector>

#include "base/error.hpp"
#include "quantization/activation_flow.hpp"
#include "quantization/calibration_text.hpp"
#include "quantization/export.hpp"
#include "vision/tower_feed.hpp"

namespace hexlm {

/// The images of a calibration set as inputs of a tower's graph. Refers to the set.
class TowerSamples {
 public:
  TowerSamples(const VisionConfig& config, const std::vector<PreparedImage>& images, const Graph& tower);
  const std::vector<FlowSample>& samples() const { return samples_; }

 private:
  std::vector<std::unique_ptr<TowerFeed>> feeds_;
  std::vector<FlowSample> samples_;
};

/// The sequences of a calibration set as inputs of a text graph. Refers to the set.
class TextSamples {
 public:
  /// Runs the float tower on the images that sequences show. Errors: the runner's; those of rope_positions.
  static Result<TextSamples> create(const CalibrationSet& set, const ModelConfig& config,
                                    const std::shared_ptr<const WeightSource>& weights,
                                    const GraphRunner& runner);
  const std::vector<FlowSample>& samples() const { return samples_; }

 private:
  /// What one sequence needs beside its ids.
  struct Inputs {
    std::vector<int32_t> positions;
    std::vector<int32_t> image_index;
    std::vector<std::vector<float>>
        features;  ///< of its images; then one of that size for each deepstack level
  };
  std::vector<std::unique_ptr<Inputs>> inputs_;
  std::vector<FlowSample> samples_;
};

/// The decoder's graph for a calibration set: with image inputs when a sequence shows images.
Result<Graph> graph_for(const CalibrationSet& set, const ExportPlan& plan);

}  // namespace hexlm
