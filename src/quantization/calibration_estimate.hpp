#pragma once

#include <functional>
#include <string>

#include "base/error.hpp"
#include "base/thread_pool.hpp"
#include "quantization/activation_flow.hpp"
#include "quantization/layer_stages.hpp"
#include "quantization/matrix_solver.hpp"
#include "quantization/method.hpp"

namespace hexlm {

/// How strongly drift correction is held back, as a part of the mean of the Hessian's diagonal. Measured on
/// tiny-vl (docs/quantization.md): 0.03 follows the calibration text too closely, 1 corrects too little.
inline constexpr double drift_damping = 0.3;
/// Larger where tokens are few for the columns, as the correction is mostly noise then.
double drift_damping_for(const InputMoments& moments);
/// Of gptq and best.
SolverOptions solver_options(Method method);

/// What a layer's time is measured with.
struct EstimateInputs {
  const Graph& graph;
  const WeightSource& weights;
  const ActivationFlow& quantized;
  const ActivationFlow* twin;
  std::function<Codec(const std::string& weight)> codec_of;
  Method method;
};

/// Seconds that one layer will take: its work is done on a few samples and rows. The flows stand at the
/// layer's input and stay there. Errors: those of the runner and of the statistics.
Result<double> estimate_layer(const EstimateInputs& inputs, const WalkLayer& layer, ThreadPool& pool);

}  // namespace hexlm
