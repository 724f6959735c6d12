#include "quantization/calibration_estimate.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include "quantization/quantizer.hpp"
#include "quantization/stage_measure.hpp"

namespace hexlm {
namespace {

/// With few tokens for many columns the correction is mostly noise: damping grows by this times their ratio.
constexpr double drift_noise = 4;
constexpr int best_sweeps = 4;
constexpr double hessian_damping = 0.01;

using EstimateClock = std::chrono::steady_clock;

double since(EstimateClock::time_point start) {
  return std::chrono::duration<double>(EstimateClock::now() - start).count();
}

class LayerEstimate {
 public:
  LayerEstimate(const EstimateInputs& inputs, ThreadPool& pool) : inputs_(inputs), pool_(pool) {}

  Result<double> layer(const WalkLayer& layer) const {
    double seconds = 0;
    for (const Half& half : layer.halves) {
      // The flows stand at the first half's input; what the others read has the same shape.
      for (const Stage& stage : half.stages) {
        HEXLM_ASSIGN(const double taken, stage_time(half, stage));
        seconds += taken;
      }
      if (half.leaves) continue;
      const double flows = inputs_.twin != nullptr ? 2 : 1;
      HEXLM_ASSIGN(const double taken, extrapolate([&](size_t count) { return probe(half, count); }));
      seconds += flows * taken;
    }
    return seconds;
  }

 private:
  /// Seconds for all samples, from those for one and for three.
  template <class Work>
  Result<double> extrapolate(Work work) const {
    const size_t all = inputs_.quantized.samples();
    const size_t few = std::min<size_t>(3, all);
    double taken[2] = {0, 0};
    for (const size_t count : {size_t{1}, few}) {
      const auto start = EstimateClock::now();
      HEXLM_TRY(work(count));
      taken[count == 1 ? 0 : 1] = since(start);
    }
    if (few == 1) return taken[0];
    const double each = std::max(0.0, taken[1] - taken[0]) / static_cast<double>(few - 1);
    return taken[0] + each * static_cast<double>(all - 1);
  }

  /// Runs the first samples without keeping what comes out.
  Status probe(const Half& half, size_t count) const {
    const ActivationFlow& flow = inputs_.quantized;
    HEXLM_ASSIGN(ActivationFlow::Part part, flow.prepare({half.from}, std::array{half.to}));
    std::vector<float> out(static_cast<size_t>(flow.most_rows(half.to) * flow.width(half.to)));
    for (size_t i = 0; i < count; ++i) HEXLM_TRY(flow.run(part, i, std::array{out.data()}));
    return {};
  }

  Result<double> stage_time(const Half& half, const Stage& stage) const {
    const StageMeasure measure(inputs_.graph, inputs_.quantized, inputs_.twin, pool_);
    InputMoments moments;
    HEXLM_ASSIGN(double seconds, extrapolate([&](size_t count) -> Status {
                   HEXLM_ASSIGN(moments, measure.measure(half, stage, count));
                   return {};
                 }));
    moments.residual = {};
    const std::string& name = inputs_.graph.parameter(stage.linears[0]->parameters[0]).name;
    HEXLM_ASSIGN(const WeightView view, inputs_.weights.find(name));
    int64_t all = 0;
    for (const Node* node : stage.linears) all += inputs_.graph.parameter(node->parameters[0]).shape[0];
    const int64_t few = std::min(view.rows(), int64_t{64} * pool_.threads());
    std::vector<float> rows = decode_rows(view, 0, few);
    inputs_.weights.release(view);
    const double times = static_cast<double>(all) / static_cast<double>(few);
    if (inputs_.twin != nullptr) seconds += correction_time(moments, rows, times);
    auto start = EstimateClock::now();
    HEXLM_ASSIGN(const MatrixSolver solver,
                 MatrixSolver::create(moments, solver_options(inputs_.method), stage.linears[0]->name));
    seconds += since(start);
    start = EstimateClock::now();
    solver.solve(rows, rows, inputs_.codec_of(name), pool_);
    return seconds + since(start) * times;
  }

  /// Factoring, which comes once, and the rows. Consumes the cross products: two sets of moments would be the
  /// export's peak of memory.
  static double correction_time(InputMoments& moments, std::vector<float>& rows, double times) {
    auto start = EstimateClock::now();
    correct_drift(moments, drift_damping, std::span(rows).first(static_cast<size_t>(moments.columns)));
    const double once = since(start);
    moments.cross = moments.gram;
    start = EstimateClock::now();
    correct_drift(moments, drift_damping, rows);
    return once + std::max(0.0, since(start) - once) * times;
  }

  const EstimateInputs& inputs_;
  ThreadPool& pool_;
};

}  // namespace

double drift_damping_for(const InputMoments& moments) {
  return drift_damping *
         (1 + drift_noise * static_cast<double>(moments.columns) / static_cast<double>(moments.tokens));
}

SolverOptions solver_options(Method method) {
  return {hessian_damping, method == Method::best ? best_sweeps : 0};
}

Result<double> estimate_layer(const EstimateInputs& inputs, const WalkLayer& layer, ThreadPool& pool) {
  return LayerEstimate(inputs, pool).layer(layer);
}

}  // namespace hexlm
