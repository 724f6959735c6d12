#include "quantization/moments.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "quantization/dense.hpp"

namespace hexlm {
namespace {

/// Columns of one unit of work: wide enough for the product's cache blocks, small enough to balance threads.
constexpr int64_t strip_columns = 128;

int64_t strips_of(int64_t columns) { return (columns + strip_columns - 1) / strip_columns; }

/// The rows of `values`, each multiplied with its factor; `values` itself without factors.
const float* scaled(const float* values, int64_t width, const TokenBatch& batch, std::vector<float>& room) {
  if (values == nullptr || batch.factors == nullptr) return values;
  room.resize(static_cast<size_t>(batch.tokens * width));
  for (int64_t t = 0; t < batch.tokens; ++t) {
    for (int64_t c = 0; c < width; ++c) {
      room[static_cast<size_t>(t * width + c)] = batch.factors[t] * values[t * width + c];
    }
  }
  return room.data();
}

/// Divides sums by the tokens and rounds to float32; false when one is not finite.
bool make_means(std::vector<double>& sums, double scale) {
  bool finite = true;
  for (double& value : sums) {
    value = static_cast<float>(value * scale);
    finite = finite && std::isfinite(value);
  }
  return finite;
}

}  // namespace

double InputMoments::range_ratio() const {
  const double smaller = std::min(half_max[0], half_max[1]);
  return smaller > 0 ? std::max(half_max[0], half_max[1]) / smaller : 1;
}

MomentSums::MomentSums(int64_t columns, bool with_cross, int64_t outputs) : outputs_(outputs) {
  sums_.columns = columns;
  const auto square = static_cast<size_t>(columns * columns);
  sums_.gram.resize(square);
  if (with_cross) sums_.cross.resize(square);
  sums_.residual.resize(static_cast<size_t>(outputs * columns));
  sums_.mean_abs.resize(static_cast<size_t>(columns));
}

void MomentSums::add_range(const TokenBatch& batch) {
  double& half = sums_.half_max[sequences_ % 2];
  for (int64_t i = 0; i < batch.tokens * sums_.columns; ++i) {
    half = std::max(half, std::fabs(static_cast<double>(batch.x[i])));
  }
  ++sequences_;
  sums_.tokens += batch.tokens;
}

void MomentSums::add(const TokenBatch& batch, ThreadPool& pool) {
  const int64_t columns = sums_.columns;
  const int64_t tokens = batch.tokens;
  const int64_t strips = strips_of(columns);
  const DenseKernels& dense = dense_kernels();
  add_range(batch);
  std::vector<float> room[3];
  const float* x = scaled(batch.x, columns, batch, room[0]);
  const float* f = sums_.cross.empty() ? nullptr : scaled(batch.float_x, columns, batch, room[1]);
  const float* d = outputs_ == 0 ? nullptr : scaled(batch.residual, outputs_, batch, room[2]);
  pool.run(strips + strips_of(outputs_), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t strip = begin; strip < end; ++strip) {
      if (strip >= strips) {
        const int64_t first = (strip - strips) * strip_columns;
        dense.accumulate_products(d, outputs_, x, columns, tokens, first,
                                  std::min(outputs_, first + strip_columns), 0, sums_.residual.data());
        continue;
      }
      const int64_t first = strip * strip_columns;
      const int64_t last = std::min(columns, first + strip_columns);
      // The Gram matrix is symmetric: only the columns from the strip's first on.
      dense.accumulate_products(x, columns, x, columns, tokens, first, last, first, sums_.gram.data());
      if (f != nullptr) {
        dense.accumulate_products(f, columns, x, columns, tokens, first, last, 0, sums_.cross.data());
      }
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t c = first; c < last; ++c) {
          sums_.mean_abs[static_cast<size_t>(c)] += std::fabs(batch.x[t * columns + c]);
        }
      }
    }
  });
}

Result<InputMoments> MomentSums::finish(const std::string& what) && {
  const int64_t n = sums_.columns;
  if (sums_.tokens == 0) return fail(ErrorCode::bad_input, fmt::format("{}: no calibration tokens", what));
  const double scale = 1.0 / static_cast<double>(sums_.tokens);
  double trace = 0;
  bool finite = make_means(sums_.gram, scale);
  for (std::vector<double>* sums : {&sums_.cross, &sums_.residual, &sums_.mean_abs}) {
    finite = make_means(*sums, scale) && finite;
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i; j < n; ++j) {
      sums_.gram[static_cast<size_t>(j * n + i)] = sums_.gram[static_cast<size_t>(i * n + j)];
    }
    trace += sums_.gram[static_cast<size_t>(i * n + i)];
  }
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
