#include "quantization/moments.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "quantization/dense.hpp"

namespace hexlm {
namespace {

/// Columns of one unit of work: wide enough for the product's cache blocks, small enough to balance threads.
constexpr int64_t strip_columns = 128;

}  // namespace

double InputMoments::range_ratio() const {
  const double smaller = std::min(half_max[0], half_max[1]);
  return smaller > 0 ? std::max(half_max[0], half_max[1]) / smaller : 1;
}

MomentSums::MomentSums(int64_t columns, bool with_cross) {
  sums_.columns = columns;
  const auto square = static_cast<size_t>(columns * columns);
  sums_.gram.resize(square);
  if (with_cross) sums_.cross.resize(square);
  sums_.mean_abs.resize(static_cast<size_t>(columns));
  sums_.max_abs.resize(static_cast<size_t>(columns));
}

void MomentSums::add(const float* x, const float* float_x, int64_t tokens, ThreadPool& pool) {
  const int64_t columns = sums_.columns;
  const int64_t strips = (columns + strip_columns - 1) / strip_columns;
  const DenseKernels& dense = dense_kernels();
  pool.run(strips, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t first = strip * strip_columns;
      const int64_t last = std::min(columns, first + strip_columns);
      // The Gram matrix is symmetric: only the columns from the strip's first on.
      dense.accumulate_products(x, x, tokens, columns, first, last, first, sums_.gram.data());
      if (!sums_.cross.empty()) {
        dense.accumulate_products(float_x, x, tokens, columns, first, last, 0, sums_.cross.data());
      }
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t c = first; c < last; ++c) {
          const double size = std::fabs(x[t * columns + c]);
          sums_.mean_abs[static_cast<size_t>(c)] += size;
          double& most = sums_.max_abs[static_cast<size_t>(c)];
          most = std::max(most, size);
        }
      }
    }
  });
  double& half = sums_.half_max[sequences_ % 2];
  for (int64_t i = 0; i < tokens * columns; ++i) half = std::max(half, std::fabs(static_cast<double>(x[i])));
  ++sequences_;
  sums_.tokens += tokens;
}

Result<InputMoments> MomentSums::finish(const std::string& what) && {
  const int64_t n = sums_.columns;
  if (sums_.tokens == 0) return fail(ErrorCode::bad_input, fmt::format("{}: no calibration tokens", what));
  const double scale = 1.0 / static_cast<double>(sums_.tokens);
  double trace = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i; j < n; ++j) {
      double& upper = sums_.gram[static_cast<size_t>(i * n + j)];
      upper *= scale;
      finite = finite && std::isfinite(upper);
      sums_.gram[static_cast<size_t>(j * n + i)] = upper;
    }
    trace += sums_.gram[static_cast<size_t>(i * n + i)];
  }
  for (double& value : sums_.cross) {
    value *= scale;
    finite = finite && std::isfinite(value);
  }
  for (double& value : sums_.mean_abs) value *= scale;
  if (!finite) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: its inputs are not finite on the calibration text", what),
                "the checkpoint's activations overflow; use --method mse, which needs no activations");
  }
  if (trace <= 0) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: its inputs are all zero on the calibration text", what),
                "use more varied calibration text, or --method mse");
  }
  return std::move(sums_);
}

}  // namespace hexlm
