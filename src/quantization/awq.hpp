#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.hpp"
#include "formats/codec.hpp"
#include "quantization/matrix_solver.hpp"
#include "quantization/moments.hpp"

namespace hexlm {

/// Rows of one linear among the stacked linears of a stage.
struct StackedRows {
  std::span<const float> weights;  ///< [rows, columns]
  Codec codec;
};

/// Activation-aware scaling (spec D.4): the factors s by which the columns of `linears` are multiplied (and
/// their input divided) so that the outputs after rounding to nearest are closest to before. Tries s = E|x|^r
/// and E|x|^r / mean|w|^(1−r) for r = 0, 1/20, … 19/20, normalised to √(max · min) = 1. The error is that of
/// the linears' outputs over the calibration inputs, from at most 256 rows of each linear; the reference
/// implementation looks at the whole block's output instead. All ones when nothing is better.
std::vector<float> search_scales(std::span<const StackedRows> linears, const InputMoments& moments,
                                 ThreadPool& pool);

/// The moments of x / s.
void scale_moments(InputMoments& moments, std::span<const float> scales);

/// Rounds `weights` to nearest after shrinking each group's range to (1 − i/20) of it, i = 0 … 9, whichever
/// changes the group's part of the outputs least; without `clip` only i = 0.
SolvedMatrix clip_matrix(std::span<const float> weights, const InputMoments& moments, const Codec& codec,
                         bool clip, ThreadPool& pool);

}  // namespace hexlm
