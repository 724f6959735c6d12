#include "quantization/calibrate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>

#include "quantization/awq.hpp"
#include "quantization/calibration_estimate.hpp"
#include "quantization/calibration_samples.hpp"
#include "quantization/encode.hpp"
#include "quantization/layer_stages.hpp"
#include "quantization/matrix_solver.hpp"
#include "quantization/stage_measure.hpp"

namespace hexlm {
namespace {

using PlannedTensors = std::map<std::string, const ExportTensor*, std::less<>>;

/// What a stage's statistics leave for the records of its tensors.
struct StageFacts {
  double damping = 0;
  double range_ratio = 1;
};

/// One graph to walk through, and the method for its linears.
struct Walk {
  Graph graph;
  std::vector<WalkLayer> layers;
  Method method = Method::best;
  bool tower = false;
};

/// The saved statistics that are read and those that are written; both may be null.
struct Statistics {
  StatisticsReader* saved = nullptr;
  StatisticsWriter* saving = nullptr;
};

std::string stage_name(const Graph& graph, const Stage& stage) { return graph.value(stage.input).name; }

StageStatistics describe_stage(const Walk& walk, const Half& half, const Stage& stage) {
  const bool with_float = walk.method == Method::best;
  const auto width = [&](ValueId id) { return walk.graph.value(id).shape.back().value; };
  return {stage_name(walk.graph, stage), width(stage.input),
          StageMeasure::sees_residual(half, stage, with_float) ? width(half.to) : 0, with_float};
}

class LayerWalker {
 public:
  LayerWalker(const PlannedTensors& planned, const Walk& walk, std::shared_ptr<const WeightSource> weights,
              const Statistics& statistics, WorkFolder& work, int64_t first_layer, int threads)
      : planned_(planned),
        walk_(walk),
        graph_(walk.graph),
        source_(std::move(weights)),
        statistics_(statistics),
        work_(work),
        first_layer_(first_layer),
        pool_(threads),
        with_float_(walk.method == Method::best) {}

  Status start(std::span<const FlowSample> samples, const GraphRunner& runner) {
    const ValueId first = graph_.hidden()[0];
    quantized_.emplace(graph_, source_, samples, runner);
    HEXLM_TRY(quantized_->start(first));
    if (!with_float_) return {};
    float_.emplace(graph_, source_, samples, runner);
    return float_->start(first);
  }

  /// Seconds that all layers which are not finished will take.
  Result<double> estimate() {
    const auto layers = static_cast<int64_t>(walk_.layers.size());
    const int64_t left = std::clamp(first_layer_ + layers - work_.finished_layers(), int64_t{0}, layers);
    if (left == 0 || walk_.method == Method::awq) return 0;
    const EstimateInputs inputs{graph_,
                                *source_,
                                *quantized_,
                                float_ ? &*float_ : nullptr,
                                [this](const std::string& name) { return planned_.at(name)->codec; },
                                walk_.method};
    HEXLM_ASSIGN(const double seconds, estimate_layer(inputs, walk_.layers[0], pool_));
    return seconds * static_cast<double>(left);
  }

  Status layer(int64_t index) {
    const WalkLayer& layer = walk_.layers[static_cast<size_t>(index)];
    const bool finished = first_layer_ + index < work_.finished_layers();
    if (finished && walk_.method != Method::awq && quantized_) HEXLM_TRY(restore(first_layer_ + index));
    std::optional<ValueId> at;
    for (const Half& half : layer.halves) {
      if (!finished || statistics_.saving != nullptr) HEXLM_TRY(quantize(half, finished));
      if (!half.leaves) HEXLM_TRY(advance(half.from, half.to));
      if (!half.leaves) at = half.to;
    }
    if (layer.next && at) HEXLM_TRY(advance(*at, *layer.next));
    if (!finished) HEXLM_TRY(work_.store(std::move(finished_)));
    finished_.clear();
    if (quantized_) quantized_->weights().clear();
    return {};
  }

 private:
  Status advance(ValueId from, ValueId to) {
    if (quantized_) HEXLM_TRY(quantized_->advance(from, to));
    if (float_) HEXLM_TRY(float_->advance(from, to));
    return {};
  }

  Status quantize(const Half& half, bool finished) {
    if (walk_.method == Method::awq) return scale_and_round(half, finished);
    for (const Stage& stage : half.stages) {
      HEXLM_ASSIGN(InputMoments moments, moments_of(half, stage));
      if (!finished) HEXLM_TRY(quantize(stage, std::move(moments)));
    }
    return {};
  }

  Result<InputMoments> moments_of(const Half& half, const Stage& stage) {
    if (statistics_.saved != nullptr) return statistics_.saved->read(describe_stage(walk_, half, stage));
    const StageMeasure measure(graph_, *quantized_, float_ ? &*float_ : nullptr, pool_);
    HEXLM_ASSIGN(InputMoments moments, measure.measure(half, stage, quantized_->samples()));
    if (statistics_.saving != nullptr) {
      HEXLM_TRY(statistics_.saving->add(stage_name(graph_, stage), moments));
    }
    return moments;
  }

  Status quantize(const Stage& stage, InputMoments moments) {
    std::vector<float> original;
    for (const Node* node : stage.linears) {
      HEXLM_ASSIGN(const std::vector<float> rows, read_weight(weight_name(*node)));
      original.insert(original.end(), rows.begin(), rows.end());
    }
    std::vector<float> target = original;
    // A system that cannot be solved leaves the target where it is.
    if (with_float_) correct_drift(moments, drift_damping_for(moments), target);
    HEXLM_ASSIGN(const MatrixSolver solver,
                 MatrixSolver::create(moments, solver_options(walk_.method), stage.linears[0]->name));
    const double range_ratio = moments.range_ratio();
    moments = {};
    size_t first = 0;
    for (const Node* node : stage.linears) {
      const Parameter& parameter = graph_.parameter(node->parameters[0]);
      const auto count = static_cast<size_t>(parameter.shape[0] * parameter.shape[1]);
      SolvedMatrix solved =
          solver.solve(std::span(target).subspan(first, count), std::span(original).subspan(first, count),
                       planned_.at(parameter.name)->codec, pool_);
      if (quantized_) quantized_->weights().replace(parameter.name, std::move(solved.decoded));
      keep(parameter, std::move(solved), {solver.damping(), range_ratio});
      first += count;
    }
    return {};
  }

  void keep(const Parameter& parameter, SolvedMatrix solved, const StageFacts& facts) {
    FinishedTensor tensor;
    tensor.stored.name = parameter.name;
    tensor.stored.shape = parameter.shape;
    tensor.stored.codec = planned_.at(parameter.name)->codec;
    tensor.stored.stored_bytes = planned_.at(parameter.name)->stored_bytes;
    const EncodedRows& encoded = solved.encoded;
    tensor.stored.relative_error =
        encoded.squared_norm > 0 ? std::sqrt(encoded.squared_error / encoded.squared_norm) : 0;
    tensor.output_error = solved.output_error;
    tensor.damping = facts.damping;
    tensor.range_ratio = facts.range_ratio;
    tensor.encoded = std::move(solved.encoded);
    finished_.push_back(std::move(tensor));
  }

  Result<std::vector<float>> read_weight(const std::string& name) const {
    HEXLM_ASSIGN(const WeightView view, source_->find(name));
    std::vector<float> values = decode_rows(view, 0, view.rows());
    source_->release(view);
    return values;
  }

  const std::string& weight_name(const Node& node) const { return graph_.parameter(node.parameters[0]).name; }

  /// Activation-aware scaling of one half of a layer (spec D.4), on the float model's activations: scales for
  /// every stage first, then the folds, then clipping and rounding.
  Status scale_and_round(const Half& half, bool finished) {
    std::map<std::string, std::vector<float>> weights;  // of this half, scaled as we go
    std::vector<InputMoments> moments;
    for (const Stage& stage : half.stages) {
      HEXLM_ASSIGN(InputMoments measured, moments_of(half, stage));
      if (finished) continue;
      for (const std::vector<const Node*>* readers : {&stage.linears, &stage.companions}) {
        for (const Node* node : *readers) {
          HEXLM_ASSIGN(weights[weight_name(*node)], read_weight(weight_name(*node)));
        }
      }
      moments.push_back(std::move(measured));
    }
    if (finished) return {};
    std::set<std::string> changed;  // beyond those that are rounded anyway
    for (size_t i = 0; i < half.stages.size(); ++i) {
      HEXLM_TRY(scale_stage(half.stages[i], moments[i], weights, changed));
    }
    for (size_t i = 0; i < half.stages.size(); ++i) {
      for (const Node* node : half.stages[i].linears) {
        const Parameter& parameter = graph_.parameter(node->parameters[0]);
        // Queries and keys meet in a softmax, where clipping costs more than it saves (spec D.4).
        const bool clip =
            node->name.find(".q_") == std::string::npos && node->name.find(".k_") == std::string::npos;
        keep(
            parameter,
            clip_matrix(weights[parameter.name], moments[i], planned_.at(parameter.name)->codec, clip, pool_),
            {0, moments[i].range_ratio()});
        changed.erase(parameter.name);
      }
    }
    for (const std::string& name : changed) HEXLM_TRY(keep_floats(name, weights[name]));
    return {};
  }

  /// Multiplies the columns of a stage's linears and divides what makes their input, where that is possible
  /// without changing the function.
  Status scale_stage(const Stage& stage, InputMoments& moments,
                     std::map<std::string, std::vector<float>>& weights, std::set<std::string>& changed) {
    const std::optional<FoldTarget> target = find_fold_target(graph_, stage);
    if (!target) return {};
    std::vector<StackedRows> rows;
    rows.reserve(stage.linears.size());
    for (const Node* node : stage.linears) {
      rows.push_back({weights[weight_name(*node)], planned_.at(weight_name(*node))->codec});
    }
    const std::vector<float> scales = search_scales(rows, moments, pool_);
    for (const std::vector<const Node*>* readers : {&stage.linears, &stage.companions}) {
      for (const Node* node : *readers) {
        std::vector<float>& values = weights[weight_name(*node)];
        for (size_t i = 0; i < values.size(); ++i) values[i] *= scales[i % scales.size()];
        changed.insert(weight_name(*node));
      }
    }
    scale_moments(moments, scales);
    for (const std::string& name : target->divided) {
      if (weights.find(name) == weights.end()) {
        HEXLM_ASSIGN(weights[name], read_weight(name));
      }
      std::vector<float>& values = weights[name];
      // A matrix is divided row by row, a vector element by element.
      const size_t width = values.size() / scales.size();
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = (values[i] + target->offset) / scales[i / width] - target->offset;
      }
      changed.insert(name);
    }
    return {};
  }

  /// A changed weight that stays in floats.
  Status keep_floats(const std::string& name, const std::vector<float>& values) {
    FinishedTensor tensor;
    const ExportTensor& plan = *planned_.at(name);
    tensor.stored.name = name;
    tensor.stored.shape = plan.shape;
    tensor.stored.codec = plan.codec;
    tensor.stored.stored_bytes = plan.stored_bytes;
    const auto fault =
        encode_rows(reinterpret_cast<const std::byte*>(values.data()), DType::f32, 1,
                    static_cast<int64_t>(values.size()), plan.codec, Method::rtn, tensor.encoded);
    if (fault) {
      return tl::unexpected<Error>(describe(
          *fault, plan.codec, fmt::format("after scaling, tensor '{}'", name), std::array{fault->column}));
    }
    finished_.push_back(std::move(tensor));
    return {};
  }

  /// Puts the weights of a layer that an earlier run finished in place.
  Status restore(int64_t index) {
    for (const std::string& name : work_.layer(index)) {
      quantized_->weights().replace(name, decode_stored(*work_.find(name)));
    }
    return {};
  }

  const PlannedTensors& planned_;
  const Walk& walk_;
  const Graph& graph_;
  std::shared_ptr<const WeightSource> source_;
  Statistics statistics_;
  WorkFolder& work_;
  int64_t first_layer_;
  ThreadPool pool_;
  bool with_float_;
  /// None of the two when statistics were saved.
  std::optional<ActivationFlow> quantized_;
  std::optional<ActivationFlow> float_;
  std::vector<FinishedTensor> finished_;
};

/// The tower first: the decoder's images come out of it.
Result<std::vector<Walk>> plan_walks(const ExportOptions& options, const ExportPlan& plan) {
  PlannedTensors planned;
  for (const ExportTensor& tensor : plan.tensors) planned[tensor.name] = &tensor;
  const auto wanted = [&](ParameterRole role) {
    return [&planned, role](const Parameter& parameter) {
      const auto found = planned.find(parameter.name);
      return found != planned.end() && parameter.role == role && !found->second->codec.is_float();
    };
  };
  std::vector<Walk> walks;
  const Method vision_method = vision_method_of(options);
  if (plan.config.vision && needs_calibration(vision_method)) {
    HEXLM_ASSIGN(Graph graph, build_vision_graph(plan.config));
    walks.push_back({std::move(graph), {}, vision_method, true});
    HEXLM_ASSIGN(walks.back().layers,
                 tower_layers(walks.back().graph, *plan.config.vision, wanted(ParameterRole::vision)));
  }
  if (needs_calibration(options.method)) {
    HEXLM_ASSIGN(Graph graph, graph_for(*options.calibration, plan));
    walks.push_back({std::move(graph), {}, options.method, false});
    HEXLM_ASSIGN(walks.back().layers, decoder_layers(walks.back().graph, wanted(ParameterRole::linear)));
  }
  return walks;
}

}  // namespace

Json method_parameters() {
  const SolverOptions best = solver_options(Method::best);
  return {
      {"damping", best.damping}, {"drift_damping", drift_damping}, {"descent_sweeps", best.descent_sweeps}};
}

Result<std::vector<StageStatistics>> planned_statistics(const ExportOptions& options,
                                                        const ExportPlan& plan) {
  HEXLM_ASSIGN(const std::vector<Walk> walks, plan_walks(options, plan));
  std::vector<StageStatistics> stages;
  for (const Walk& walk : walks) {
    for (const WalkLayer& layer : walk.layers) {
      for (const Half& half : layer.halves) {
        for (const Stage& stage : half.stages) stages.push_back(describe_stage(walk, half, stage));
      }
    }
  }
  return stages;
}

Status quantize_layers(const ExportOptions& options, const ExportPlan& plan,
                       const std::shared_ptr<const WeightSource>& weights, StatisticsReader* saved,
                       StatisticsWriter* saving, WorkFolder& work, const ProgressCallback& progress) {
  PlannedTensors planned;
  for (const ExportTensor& tensor : plan.tensors) planned[tensor.name] = &tensor;
  HEXLM_ASSIGN(const std::vector<Walk> walks, plan_walks(options, plan));
  const CalibrationSet& set = *options.calibration;
  std::optional<TowerSamples> images;
  std::optional<TextSamples> texts;
  std::vector<std::unique_ptr<LayerWalker>> walkers;
  int64_t layers = 0;
  double seconds = 0;
  for (const Walk& walk : walks) {
    walkers.push_back(std::make_unique<LayerWalker>(planned, walk, weights, Statistics{saved, saving}, work,
                                                    layers, options.threads));
    layers += static_cast<int64_t>(walk.layers.size());
    if (saved != nullptr) continue;
    if (walk.tower) images.emplace(*plan.config.vision, set.images, walk.graph);
    if (!walk.tower) {
      HEXLM_ASSIGN(texts, TextSamples::create(set, plan.config, weights, *options.runner));
    }
    HEXLM_TRY(walkers.back()->start(walk.tower ? images->samples() : texts->samples(), *options.runner));
    HEXLM_ASSIGN(const double taken, walkers.back()->estimate());
    seconds += taken;
  }
  if (options.on_estimate && seconds > 0) options.on_estimate(seconds);
  int64_t done = 0;
  for (size_t w = 0; w < walks.size(); ++w) {
    for (int64_t index = 0; index < static_cast<int64_t>(walks[w].layers.size()); ++index, ++done) {
      if (progress && !progress(fmt::format("layer {}", done), static_cast<uint64_t>(done),
                                static_cast<uint64_t>(layers))) {
        return fail(
            ErrorCode::interrupted, fmt::format("interrupted at layer {} of {}", done, layers),
            fmt::format("the same command goes on from here: {} keeps what is finished", work.path()));
      }
      HEXLM_TRY(walkers[w]->layer(index));
    }
    walkers[w].reset();
  }
  if (progress) progress("layers", static_cast<uint64_t>(layers), static_cast<uint64_t>(layers));
  return {};
}

}  // namespace hexlm
