#include "quantization/calibration_samples.hpp"

#include <array>
#include <fmt/format.h>

#include "vision/positions.hpp"

namespace hexlm {
namespace {

TowerShape tower_shape(const VisionConfig& config) {
  return {static_cast<int>(config.merge_size), static_cast<int>(config.head_dim()), config.rope_theta,
          static_cast<int>(config.position_side), static_cast<int>(config.window_cells)};
}

/// What the float tower makes of each image: its outputs one after the other.
Result<std::vector<std::vector<std::vector<float>>>> encode_images(
    const CalibrationSet& set, const ModelConfig& config, const std::shared_ptr<const WeightSource>& weights,
    const GraphRunner& runner) {
  std::vector<std::vector<std::vector<float>>> features;
  if (set.images.empty()) return features;
  HEXLM_ASSIGN(Graph tower, build_vision_graph(config));
  const TowerSamples images(*config.vision, set.images, tower);
  const ActivationFlow flow(tower, weights, images.samples(), runner);
  HEXLM_ASSIGN(ActivationFlow::Part part, flow.prepare({}, tower.outputs()));
  for (size_t i = 0; i < set.images.size(); ++i) {
    std::vector<std::vector<float>>& outputs = features.emplace_back();
    std::vector<float*> pointers;
    for (const ValueId id : tower.outputs()) {
      pointers.push_back(outputs.emplace_back(static_cast<size_t>(flow.rows(i, id) * flow.width(id))).data());
    }
    HEXLM_TRY(flow.run(part, i, pointers));
  }
  return features;
}

std::vector<int32_t> rows_of_images(const std::vector<int32_t>& ids, int32_t image_token) {
  std::vector<int32_t> rows;
  rows.reserve(ids.size());
  int32_t next = 0;
  for (const int32_t id : ids) rows.push_back(id == image_token ? next++ : -1);
  return rows;
}

}  // namespace

TowerSamples::TowerSamples(const VisionConfig& config, const std::vector<PreparedImage>& images,
                           const Graph& tower) {
  for (const PreparedImage& image : images) {
    feeds_.push_back(std::make_unique<TowerFeed>(tower_shape(config), image.grid));
    FlowSample& sample = samples_.emplace_back();
    sample.sizes.patches = image.grid.tokens(static_cast<int>(config.merge_size));
    for (const ValueId id : tower.inputs()) {
      const std::string& name = tower.value(id).name;
      sample.inputs.emplace_back(name, feeds_.back()->find(name, image));
    }
  }
}

Result<TextSamples> TextSamples::create(const CalibrationSet& set, const ModelConfig& config,
                                        const std::shared_ptr<const WeightSource>& weights,
                                        const GraphRunner& runner) {
  HEXLM_ASSIGN(const auto features, encode_images(set, config, weights, runner));
  TextSamples all;
  for (size_t i = 0; i < set.sequences.size(); ++i) {
    const std::vector<int32_t>& ids = set.sequences[i];
    Inputs& inputs = *all.inputs_.emplace_back(std::make_unique<Inputs>());
    FlowSample& sample = all.samples_.emplace_back();
    sample.sizes.tokens = static_cast<int64_t>(ids.size());
    sample.inputs.emplace_back("ids", ids.data());
    std::vector<ImageGrid> grids;
    inputs.features.resize(features.empty() ? 0 : features[0].size());
    for (const size_t shown : set.images_of(i)) {
      grids.push_back(set.images[shown].grid);
      for (size_t level = 0; level < inputs.features.size(); ++level) {
        const std::vector<float>& rows = features[shown][level];
        inputs.features[level].insert(inputs.features[level].end(), rows.begin(), rows.end());
      }
    }
    const int merge = config.vision ? static_cast<int>(config.vision->merge_size) : 1;
    const int32_t image_token = config.vision ? config.vision->image_token : -1;
    for (const ImageGrid& grid : grids) sample.sizes.patches += grid.tokens(merge);
    HEXLM_ASSIGN(const RopePositions positions,
                 rope_positions(ids, grids.empty() ? -1 : image_token, grids, merge));
    for (const auto& axis : positions.ids)
      inputs.positions.insert(inputs.positions.end(), axis.begin(), axis.end());
    inputs.image_index = rows_of_images(ids, grids.empty() ? -1 : image_token);
    sample.inputs.emplace_back("positions", inputs.positions.data());
    sample.inputs.emplace_back("image_index", inputs.image_index.data());
    for (size_t level = 0; level < inputs.features.size(); ++level) {
      sample.inputs.emplace_back(level == 0 ? "image_features" : fmt::format("deepstack.{}", level - 1),
                                 inputs.features[level].data());
    }
  }
  return all;
}

Result<Graph> graph_for(const CalibrationSet& set, const ExportPlan& plan) {
  return set.images.empty() ? graph_of_text(plan) : build_text_graph(plan.config);
}

}  // namespace hexlm
