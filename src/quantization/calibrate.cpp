#include "quantization/calibrate.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>

#include "graph/extract.hpp"
#include "quantization/awq.hpp"
#include "quantization/encode.hpp"
#include "quantization/layer_stages.hpp"
#include "quantization/matrix_solver.hpp"
#include "quantization/moments.hpp"
#include "quantization/overlay_weights.hpp"

namespace hexlm {
namespace {

/// How strongly drift correction is held back, as a part of the mean of the Hessian's diagonal. Measured on
/// tiny-vl (docs/quantization.md): 0.03 follows the calibration text too closely, 1 corrects too little.
constexpr double drift_damping = 0.3;
/// With few tokens for many columns the correction is mostly noise: damping grows by this times their ratio.
constexpr double drift_noise = 4;

double drift_damping_for(const InputMoments& moments) {
  return drift_damping *
         (1 + drift_noise * static_cast<double>(moments.columns) / static_cast<double>(moments.tokens));
}
constexpr int best_sweeps = 4;

/// What a stage's statistics leave for the records of its tensors.
struct StageFacts {
  double damping = 0;
  double range_ratio = 1;
};

/// The hidden states of all sequences at one point of one version of the model.
struct Flow {
  std::shared_ptr<OverlayWeights> weights;
  std::vector<std::vector<float>> states;
};

class LayerWalker {
 public:
  LayerWalker(const ExportPlan& plan, const Graph& graph, std::shared_ptr<const WeightSource> weights,
              const std::vector<std::vector<int32_t>>& sequences, const GraphRunner& runner,
              const LayerOptions& options, WorkFolder& work)
      : graph_(graph),
        source_(std::move(weights)),
        sequences_(sequences),
        runner_(runner),
        options_(options),
        work_(work),
        pool_(options.threads),
        with_float_(options.method == Method::best) {
    for (const ExportTensor& tensor : plan.tensors) planned_[tensor.name] = &tensor;
    for (const auto& sequence : sequences)
      longest_ = std::max(longest_, static_cast<int64_t>(sequence.size()));
    for (Flow* flow : {&quantized_, &float_}) flow->weights = std::make_shared<OverlayWeights>(source_);
    for (int32_t stream = 0; stream < 3; ++stream) {
      for (int32_t t = 0; t < longest_; ++t) positions_.push_back(t);
    }
  }

  Status embed() {
    const ValueId first = graph_.hidden()[0];
    HEXLM_ASSIGN(const auto embedding, prepare(quantized_, {}, first));
    for (const auto& ids : sequences_) {
      std::vector<float> state(ids.size() * width(first));
      const void* const inputs[] = {ids.data()};
      float* const outputs[] = {state.data()};
      HEXLM_TRY(embedding->run(static_cast<int64_t>(ids.size()), inputs, outputs));
      quantized_.states.push_back(std::move(state));
    }
    if (with_float_) float_.states = quantized_.states;
    return {};
  }

  Status layer(int64_t index) {
    HEXLM_ASSIGN(const LayerStages stages, stages_of(index));
    const bool finished = index < work_.finished_layers();
    if (finished && options_.method != Method::awq) HEXLM_TRY(restore(index));
    for (const auto& [half, from, to] : {std::tuple(&stages.mixer, stages.input, stages.middle),
                                         std::tuple(&stages.mlp, stages.middle, stages.output)}) {
      if (!finished && options_.method == Method::awq) {
        HEXLM_TRY(scale_and_round(*half, from));
      } else if (!finished) {
        for (const Stage& stage : *half) HEXLM_TRY(quantize(stage, from));
      }
      HEXLM_TRY(advance(quantized_, from, to));
      if (with_float_) HEXLM_TRY(advance(float_, from, to));
    }
    if (!finished) HEXLM_TRY(work_.store(std::move(finished_)));
    finished_.clear();
    quantized_.weights->clear();
    return {};
  }

  /// Seconds that a layer will take, from the work of layer 0 on a few sequences and rows.
  Result<double> estimate_layer() {
    HEXLM_ASSIGN(const LayerStages stages, stages_of(0));
    double seconds = 0;
    for (const auto& [half, from, to] : {std::tuple(&stages.mixer, stages.input, stages.middle),
                                         std::tuple(&stages.mlp, stages.middle, stages.output)}) {
      for (const Stage& stage : *half) {
        HEXLM_ASSIGN(const double taken, estimate_stage(stage, from));
        seconds += taken;
      }
      const double flows = with_float_ ? 2 : 1;
      HEXLM_ASSIGN(const double taken, extrapolate([&](size_t count) { return probe(from, to, count); }));
      seconds += flows * taken;
      // The second half's own inputs are not there yet; the first half's have the same shape.
    }
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  Result<LayerStages> stages_of(int64_t index) const {
    return find_stages(graph_, index, [&](const Parameter& parameter) {
      const auto found = planned_.find(parameter.name);
      return found != planned_.end() && parameter.role == ParameterRole::linear &&
             !found->second->codec.is_float();
    });
  }

  /// Seconds for all sequences, from those for one and for three.
  template <class Work>
  Result<double> extrapolate(Work work) {
    const size_t few = std::min<size_t>(3, sequences_.size());
    double taken[2] = {0, 0};
    for (const size_t count : {size_t{1}, few}) {
      const auto start = Clock::now();
      HEXLM_TRY(work(count));
      taken[count == 1 ? 0 : 1] = since(start);
    }
    if (few == 1) return taken[0];
    const double each = std::max(0.0, taken[1] - taken[0]) / static_cast<double>(few - 1);
    return taken[0] + each * static_cast<double>(sequences_.size() - 1);
  }

  /// Runs the first sequences without keeping what comes out.
  Status probe(ValueId from, ValueId to, size_t count) {
    HEXLM_ASSIGN(const auto graph, prepare(quantized_, {from}, to));
    std::vector<float> out(static_cast<size_t>(longest_) * width(to));
    for (size_t i = 0; i < count; ++i) HEXLM_TRY(run(*graph, quantized_, i, out.data()));
    return {};
  }

  Result<double> estimate_stage(const Stage& stage, ValueId from) {
    InputMoments moments;
    HEXLM_ASSIGN(double seconds, extrapolate([&](size_t count) -> Status {
                   HEXLM_ASSIGN(moments, measure(stage, from, count));
                   return {};
                 }));
    HEXLM_ASSIGN(std::vector<float> rows, read_weight(weight_name(*stage.linears[0])));
    int64_t all = 0;
    for (const Node* node : stage.linears) all += graph_.parameter(node->parameters[0]).shape[0];
    const int64_t few =
        std::min(static_cast<int64_t>(rows.size()) / moments.columns, int64_t{64} * pool_.threads());
    rows.resize(static_cast<size_t>(few * moments.columns));
    const double times = static_cast<double>(all) / static_cast<double>(few);
    if (with_float_) {
      // Factoring, which comes once, and the rows.
      InputMoments copy = moments;
      auto start = Clock::now();
      correct_drift(copy, drift_damping, std::span(rows).first(static_cast<size_t>(moments.columns)));
      const double once = since(start);
      copy = moments;
      start = Clock::now();
      correct_drift(copy, drift_damping, rows);
      seconds += once + std::max(0.0, since(start) - once) * times;
    }
    auto start = Clock::now();
    const SolverOptions settings{options_.damping, options_.method == Method::best ? best_sweeps : 0};
    HEXLM_ASSIGN(const MatrixSolver solver, MatrixSolver::create(moments, settings, stage.linears[0]->name));
    seconds += since(start);
    start = Clock::now();
    solver.solve(rows, rows, planned_[weight_name(*stage.linears[0])]->codec, pool_);
    return seconds + since(start) * times;
  }

  size_t width(ValueId id) const { return static_cast<size_t>(graph_.value(id).shape.back().value); }

  Result<std::unique_ptr<PreparedGraph>> prepare(const Flow& flow, std::vector<ValueId> from,
                                                 ValueId to) const {
    HEXLM_ASSIGN(Graph part, extract(graph_, from, std::array{to}));
    return runner_.prepare(std::make_shared<const Graph>(std::move(part)), flow.weights, longest_);
  }

  /// Runs sequence `index` from its hidden state.
  Status run(PreparedGraph& graph, const Flow& flow, size_t index, float* out) {
    const auto tokens = static_cast<int64_t>(sequences_[index].size());
    // [3, T]: shorter sequences need their rows closer together.
    if (tokens != position_tokens_) {
      for (int64_t stream = 0; stream < 3; ++stream) {
        for (int64_t t = 0; t < tokens; ++t) {
          positions_[static_cast<size_t>(stream * tokens + t)] = static_cast<int32_t>(t);
        }
      }
      position_tokens_ = tokens;
    }
    const void* const inputs[] = {flow.states[index].data(), positions_.data()};
    float* const outputs[] = {out};
    return graph.run(tokens, std::span(inputs).first(graph.input_count()), outputs);
  }

  Status advance(Flow& flow, ValueId from, ValueId to) {
    HEXLM_ASSIGN(const auto graph, prepare(flow, {from}, to));
    std::vector<float> next;
    for (size_t i = 0; i < flow.states.size(); ++i) {
      next.resize(flow.states[i].size());
      HEXLM_TRY(run(*graph, flow, i, next.data()));
      flow.states[i].swap(next);
    }
    return {};
  }

  /// Moments over the first `count` sequences.
  Result<InputMoments> measure(const Stage& stage, ValueId from, size_t count) {
    HEXLM_ASSIGN(const auto graph, prepare(quantized_, {from}, stage.input));
    std::unique_ptr<PreparedGraph> twin;
    if (with_float_) {
      HEXLM_ASSIGN(twin, prepare(float_, {from}, stage.input));
    }
    const size_t columns = width(stage.input);
    MomentSums sums(static_cast<int64_t>(columns), with_float_);
    std::vector<float> x(static_cast<size_t>(longest_) * columns);
    std::vector<float> f(with_float_ ? x.size() : 0);
    for (size_t i = 0; i < count; ++i) {
      HEXLM_TRY(run(*graph, quantized_, i, x.data()));
      if (twin) HEXLM_TRY(run(*twin, float_, i, f.data()));
      sums.add(x.data(), f.data(), static_cast<int64_t>(sequences_[i].size()), pool_);
    }
    return std::move(sums).finish(stage.linears[0]->name);
  }

  Status quantize(const Stage& stage, ValueId from) {
    HEXLM_ASSIGN(InputMoments moments, measure(stage, from, sequences_.size()));
    std::vector<float> original;
    for (const Node* node : stage.linears) {
      HEXLM_ASSIGN(const WeightView view, source_->find(graph_.parameter(node->parameters[0]).name));
      const std::vector<float> rows = decode_rows(view, 0, view.rows());
      original.insert(original.end(), rows.begin(), rows.end());
    }
    std::vector<float> target = original;
    // A system that cannot be solved leaves the target where it is.
    if (with_float_) correct_drift(moments, drift_damping_for(moments), target);
    const SolverOptions settings{options_.damping, options_.method == Method::best ? best_sweeps : 0};
    HEXLM_ASSIGN(const MatrixSolver solver, MatrixSolver::create(moments, settings, stage.linears[0]->name));
    const double range_ratio = moments.range_ratio();
    moments = {};
    size_t first = 0;
    for (const Node* node : stage.linears) {
      const Parameter& parameter = graph_.parameter(node->parameters[0]);
      const auto count = static_cast<size_t>(parameter.shape[0] * parameter.shape[1]);
      SolvedMatrix solved =
          solver.solve(std::span(target).subspan(first, count), std::span(original).subspan(first, count),
                       planned_[parameter.name]->codec, pool_);
      keep(parameter, std::move(solved), {solver.damping(), range_ratio});
      first += count;
    }
    return {};
  }

  void keep(const Parameter& parameter, SolvedMatrix solved, const StageFacts& facts) {
    quantized_.weights->replace(parameter.name, std::move(solved.decoded));
    keep_file(parameter, std::move(solved), facts);
  }

  void keep_file(const Parameter& parameter, SolvedMatrix solved, const StageFacts& facts) {
    FinishedTensor tensor;
    tensor.stored.name = parameter.name;
    tensor.stored.shape = parameter.shape;
    tensor.stored.codec = planned_[parameter.name]->codec;
    tensor.stored.stored_bytes = planned_[parameter.name]->stored_bytes;
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
    return decode_rows(view, 0, view.rows());
  }

  const std::string& weight_name(const Node& node) const { return graph_.parameter(node.parameters[0]).name; }

  /// Activation-aware scaling of one half of a layer (spec D.4), on the float model's activations: scales for
  /// every stage first, then the folds, then clipping and rounding.
  Status scale_and_round(const std::vector<Stage>& half, ValueId from) {
    std::map<std::string, std::vector<float>> weights;  // of this half, scaled as we go
    std::vector<InputMoments> moments;
    for (const Stage& stage : half) {
      HEXLM_ASSIGN(InputMoments measured, measure(stage, from, sequences_.size()));
      for (const std::vector<const Node*>* readers : {&stage.linears, &stage.companions}) {
        for (const Node* node : *readers) {
          HEXLM_ASSIGN(weights[weight_name(*node)], read_weight(weight_name(*node)));
        }
      }
      moments.push_back(std::move(measured));
    }
    std::set<std::string> changed;  // beyond those that are rounded anyway
    for (size_t i = 0; i < half.size(); ++i) {
      HEXLM_TRY(scale_stage(half[i], moments[i], weights, changed));
    }
    for (size_t i = 0; i < half.size(); ++i) {
      for (const Node* node : half[i].linears) {
        const Parameter& parameter = graph_.parameter(node->parameters[0]);
        // Queries and keys meet in a softmax, where clipping costs more than it saves (spec D.4).
        const bool clip =
            node->name.find(".q_") == std::string::npos && node->name.find(".k_") == std::string::npos;
        keep_file(
            parameter,
            clip_matrix(weights[parameter.name], moments[i], planned_[parameter.name]->codec, clip, pool_),
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
      rows.push_back({weights[weight_name(*node)], planned_[weight_name(*node)]->codec});
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
    const ExportTensor& plan = *planned_[name];
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
      quantized_.weights->replace(name, decode_stored(*work_.find(name)));
    }
    return {};
  }

  const Graph& graph_;
  std::shared_ptr<const WeightSource> source_;
  const std::vector<std::vector<int32_t>>& sequences_;
  const GraphRunner& runner_;
  LayerOptions options_;
  WorkFolder& work_;
  ThreadPool pool_;
  bool with_float_;
  std::map<std::string, const ExportTensor*, std::less<>> planned_;
  Flow quantized_;
  Flow float_;
  int64_t longest_ = 0;
  std::vector<int32_t> positions_;
  int64_t position_tokens_ = -1;
  std::vector<FinishedTensor> finished_;
};

}  // namespace

Json method_parameters() {
  return {
      {"damping", LayerOptions().damping}, {"drift_damping", drift_damping}, {"descent_sweeps", best_sweeps}};
}

Status quantize_layers(const ExportPlan& plan, std::shared_ptr<const WeightSource> weights,
                       const std::vector<std::vector<int32_t>>& sequences, const GraphRunner& runner,
                       const LayerOptions& options, WorkFolder& work, const ProgressCallback& progress) {
  HEXLM_ASSIGN(const Graph graph, graph_of_text(plan));
  LayerWalker walker(plan, graph, std::move(weights), sequences, runner, options, work);
  HEXLM_TRY(walker.embed());
  const int64_t layers = plan.config.text.layers;
  if (options.on_estimate && options.method != Method::awq && work.finished_layers() < layers) {
    HEXLM_ASSIGN(const double seconds, walker.estimate_layer());
    options.on_estimate(seconds * static_cast<double>(layers - work.finished_layers()));
  }
  for (int64_t index = 0; index < layers; ++index) {
    if (progress && !progress(fmt::format("layer {}", index), static_cast<uint64_t>(index),
                              static_cast<uint64_t>(layers))) {
      return fail(ErrorCode::interrupted, fmt::format("interrupted at layer {} of {}", index, layers),
                  fmt::format("the same command goes on from here: {} keeps what is finished", work.path()));
    }
    HEXLM_TRY(walker.layer(index));
  }
  if (progress) progress("layers", static_cast<uint64_t>(layers), static_cast<uint64_t>(layers));
  return {};
}

}  // namespace hexlm
