#pragma once

#include <cstdint>

namespace hexlm {

/// Dense linear algebra for calibrated methods (Eigen), compiled once per instruction set. Matrices are
/// row-major. Results depend on the set, never on threads: each call runs on the caller's.
struct DenseKernels {
  const char* name;
  /// out[i, j] += Σ_t x[t, i] · y[t, j] for row_begin ≤ i < row_end and column_begin ≤ j < y_columns; x is
  /// [tokens, x_columns], y [tokens, y_columns], out [x_columns, y_columns]. Sums over the call's tokens are
  /// float32.
  void (*accumulate_products)(const float* x, int64_t x_columns, const float* y, int64_t y_columns,
                              int64_t tokens, int64_t row_begin, int64_t row_end, int64_t column_begin,
                              double* out);
  /// c [m, n] += a [m, k] · b [k, n], with the distances between rows.
  void (*multiply_add)(const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c,
                       int64_t c_stride, int64_t m, int64_t k, int64_t n);
  /// U, upper triangular, with h⁻¹ = Uᵀ U. False when `h` [n, n] is not positive definite (numerically). h is
  /// overwritten.
  bool (*factor_inverse)(double* h, int64_t n, float* u);
  /// w [rows, n] += (w · d + r) · a⁻¹ for symmetric a and r [rows, n], which may be null: false when `a` is
  /// not positive definite. a and d are overwritten.
  bool (*add_correction)(double* a, double* d, const double* r, int64_t n, float* w, int64_t rows);
};

/// The set for this processor.
const DenseKernels& dense_kernels();

}  // namespace hexlm
