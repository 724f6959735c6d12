#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/thread_pool.hpp"
#include "formats/codec.hpp"
#include "quantization/grid_search.hpp"
#include "quantization/moments.hpp"
#include "quantization/quantizer.hpp"

namespace hexlm {

struct SolverOptions {
  /// Added to the Hessian's diagonal, as a part of its mean (spec D.5); raised tenfold until it factors.
  double damping = 0.01;
  /// Sweeps of coordinate descent over codes and scales after the error feedback; 0 for plain GPTQ.
  int descent_sweeps = 0;
};

/// A matrix after quantization.
struct SolvedMatrix {
  EncodedRows encoded;         ///< all rows; its errors are against the original weights
  std::vector<float> decoded;  ///< [rows, columns], the values that the codec stores
  double output_error = 0;     ///< ‖(Ŵ − W) x‖ / ‖W x‖ over the calibration inputs
};

/// Quantizes the linears that share one input, by error feedback through the Hessian H = E[x xᵀ] of their
/// inputs (spec D.5): act-order with static groups. Rows are independent and handled in panels of fixed size,
/// so the result does not depend on threads.
class MatrixSolver {
 public:
  /// Factors the Hessian. Errors: bad_input naming `what` when it is singular even with damping 1.
  static Result<MatrixSolver> create(const InputMoments& moments, const SolverOptions& options,
                                     const std::string& what);

  /// Quantizes `target` [rows, columns] (for plain GPTQ the original weights).
  SolvedMatrix solve(std::span<const float> target, std::span<const float> original, const Codec& codec,
                     ThreadPool& pool) const;
  /// The damping that was needed.
  double damping() const { return damping_; }

 private:
  struct Panel;
  void choose_grids(Panel& panel) const;
  void feed_back(Panel& panel) const;
  void descend(Panel& panel) const;
  void finish(Panel& panel) const;

  int64_t columns_ = 0;
  SolverOptions options_;
  double damping_ = 0;
  std::vector<int32_t> order_;     // columns by falling energy
  std::vector<float> factor_;      // U in that order
  std::vector<float> hessian_;     // damped, original order
  std::vector<float> importance_;  // its diagonal
};

/// Quantizes row by row with `choose` (row, grids, codes and decoded values to fill in), in parallel;
/// `hessian` serves to measure the output error.
using RowChoice = std::function<void(const float* row, RowGrids& grids, uint8_t* codes, float* decoded)>;
SolvedMatrix solve_rows(std::span<const float> weights, int64_t rows, int64_t columns, const Codec& codec,
                        const float* hessian, ThreadPool& pool, const RowChoice& choose);

/// Moves `weights` [rows, columns], which read x in the quantized model, to where their outputs come nearest
/// to those of the original weights reading f in the float model, plus what the residual stream that they add
/// to lacks: W + (W (E[f xᵀ] − H) + E[d xᵀ]) (H + damping · mean diagonal)⁻¹. Damping keeps the weights near
/// where they were in directions that calibration hardly saw. Consumes the moments' cross and residual
/// products (residual ones, when there are any, are of exactly these rows). False when there is nothing to
/// correct with (the system is singular).
bool correct_drift(InputMoments& moments, double damping, std::span<float> weights);

}  // namespace hexlm
