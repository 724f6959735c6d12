#pragma once

#include <cstdint>
#include <memory>

#include "base/error.hpp"
#include "base/thread_pool.hpp"
#include "quantization/activation_flow.hpp"
#include "quantization/layer_stages.hpp"
#include "quantization/moments.hpp"

namespace hexlm {

/// Computes the moments of stages from the two versions of a model, which stand at the same point.
class StageMeasure {
 public:
  /// `twin` is the float model; null when the method does not look at it.
  StageMeasure(const Graph& graph, const ActivationFlow& quantized, const ActivationFlow* twin,
               ThreadPool& pool)
      : graph_(graph), quantized_(quantized), twin_(twin), pool_(pool) {}

  /// Moments over the first `count` samples. Errors: those of MomentSums and of the runner.
  Result<InputMoments> measure(const Half& half, const Stage& stage, size_t count) const;

  /// True when the stage's products with the residual stream's lag are taken too.
  static bool sees_residual(const Half& half, const Stage& stage, bool with_float) {
    return with_float && stage.ends_half && !half.leaves;
  }

 private:
  struct Room;
  void weigh_tokens(const Half& half, size_t sample, Room& room) const;

  const Graph& graph_;
  const ActivationFlow& quantized_;
  const ActivationFlow* twin_;
  ThreadPool& pool_;
};

}  // namespace hexlm
