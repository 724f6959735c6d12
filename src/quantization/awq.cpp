#include "quantization/awq.hpp"

#include <algorithm>
#include <cmath>

#include "quantization/dense.hpp"
#include "quantization/grid_search.hpp"

namespace hexlm {
namespace {

constexpr int scale_steps = 20;
constexpr int clip_steps = 10;
constexpr int64_t sampled_rows = 256;
constexpr int64_t block_rows = 32;

void round_row(const float* row, int64_t columns, const Codec& codec, const RowGrids& grids, uint8_t* codes,
               float* decoded) {
  const int64_t group = codec.group > 0 ? codec.group : columns;
  for (int64_t i = 0; i < columns; ++i) {
    const Grid& grid = grids.groups[static_cast<size_t>(i / group)];
    codes[i] = code_of(row[i], grid);
    decoded[i] = decode(codes[i], grid);
  }
}

/// tr(E H Eᵀ) over some rows of a linear whose columns are scaled by s, E taken back to the original columns.
class ScaledError {
 public:
  ScaledError(const StackedRows& linear, int64_t columns, const std::vector<float>& hessian)
      : linear_(linear),
        columns_(columns),
        hessian_(hessian),
        rows_(static_cast<int64_t>(linear.weights.size()) / columns),
        ones_(static_cast<size_t>(columns), 1.0F) {}

  int64_t blocks() const { return (std::min(rows_, sampled_rows) + block_rows - 1) / block_rows; }

  double block(int64_t index, std::span<const float> scales) const {
    const int64_t taken = std::min(rows_, sampled_rows);
    const int64_t first = index * block_rows;
    const int64_t count = std::min(block_rows, taken - first);
    std::vector<float> error(static_cast<size_t>(count * columns_));
    std::vector<float> row(static_cast<size_t>(columns_));
    std::vector<float> decoded(static_cast<size_t>(columns_));
    std::vector<uint8_t> codes(static_cast<size_t>(columns_));
    RowGrids grids;
    for (int64_t r = 0; r < count; ++r) {
      const float* w = linear_.weights.data() + (first + r) * rows_ / taken * columns_;
      for (int64_t i = 0; i < columns_; ++i)
        row[static_cast<size_t>(i)] = w[i] * scales[static_cast<size_t>(i)];
      choose_row_grids(row.data(), ones_.data(), columns_, linear_.codec, grids,
                       [&](const float* values, const float*, int64_t n) {
                         return widest_grid(values, n, linear_.codec);
                       });
      round_row(row.data(), columns_, linear_.codec, grids, codes.data(), decoded.data());
      for (int64_t i = 0; i < columns_; ++i) {
        error[static_cast<size_t>(r * columns_ + i)] =
            decoded[static_cast<size_t>(i)] / scales[static_cast<size_t>(i)] - w[i];
      }
    }
    std::vector<float> product(error.size());
    dense_kernels().multiply_add(error.data(), columns_, hessian_.data(), columns_, product.data(), columns_,
                                 count, columns_, columns_);
    double sum = 0;
    for (size_t i = 0; i < error.size(); ++i) sum += static_cast<double>(error[i]) * product[i];
    // Sampled rows stand for all of them.
    return sum * static_cast<double>(rows_) / static_cast<double>(taken);
  }

 private:
  StackedRows linear_;
  int64_t columns_;
  const std::vector<float>& hessian_;
  int64_t rows_;
  std::vector<float> ones_;
};

double scaled_error(std::span<const StackedRows> linears, int64_t columns, const std::vector<float>& hessian,
                    std::span<const float> scales, ThreadPool& pool) {
  double sum = 0;
  for (const StackedRows& linear : linears) {
    const ScaledError error(linear, columns, hessian);
    std::vector<double> parts(static_cast<size_t>(error.blocks()));
    pool.run(error.blocks(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t b = begin; b < end; ++b) parts[static_cast<size_t>(b)] = error.block(b, scales);
    });
    for (const double part : parts) sum += part;
  }
  return sum;
}

/// Mean over all rows of |w| over the largest |w| of its group.
std::vector<double> mean_relative_weight(std::span<const StackedRows> linears, int64_t columns) {
  std::vector<double> means(static_cast<size_t>(columns));
  int64_t rows = 0;
  for (const StackedRows& linear : linears) {
    const int64_t group = linear.codec.group > 0 ? linear.codec.group : columns;
    for (size_t at = 0; at < linear.weights.size(); at += static_cast<size_t>(columns), ++rows) {
      const float* row = linear.weights.data() + at;
      for (int64_t begin = 0; begin < columns; begin += group) {
        const int64_t end = std::min(columns, begin + group);
        float most = 0;
        for (int64_t i = begin; i < end; ++i) most = std::max(most, std::fabs(row[i]));
        if (most == 0) continue;
        for (int64_t i = begin; i < end; ++i) means[static_cast<size_t>(i)] += std::fabs(row[i]) / most;
      }
    }
  }
  for (double& mean : means) mean /= static_cast<double>(std::max<int64_t>(1, rows));
  return means;
}

std::vector<float> candidate(const InputMoments& moments, const std::vector<double>& weight_means, double r,
                             bool with_weights) {
  std::vector<float> scales;
  double most = 0;
  double least = 1e30;
  for (size_t i = 0; i < weight_means.size(); ++i) {
    double s = std::pow(std::max(moments.mean_abs[i], 1e-8), r);
    if (with_weights) s /= std::pow(weight_means[i], 1 - r) + 1e-4;
    s = std::max(s, 1e-4);
    most = std::max(most, s);
    least = std::min(least, s);
    scales.push_back(static_cast<float>(s));
  }
  const auto middle = static_cast<float>(std::sqrt(most * least));
  for (float& s : scales) s = std::isfinite(s / middle) && s > 0 ? s / middle : 1;
  return scales;
}

}  // namespace

std::vector<float> search_scales(std::span<const StackedRows> linears, const InputMoments& moments,
                                 ThreadPool& pool) {
  const int64_t columns = moments.columns;
  const std::vector<float> hessian(moments.gram.begin(), moments.gram.end());
  const std::vector<double> weight_means = mean_relative_weight(linears, columns);
  std::vector<float> best(static_cast<size_t>(columns), 1.0F);
  double least = scaled_error(linears, columns, hessian, best, pool);
  for (const bool with_weights : {false, true}) {
    for (int step = with_weights ? 0 : 1; step < scale_steps; ++step) {
      std::vector<float> scales =
          candidate(moments, weight_means, static_cast<double>(step) / scale_steps, with_weights);
      const double error = scaled_error(linears, columns, hessian, scales, pool);
      if (error >= least) continue;
      least = error;
      best = std::move(scales);
    }
  }
  return best;
}

void scale_moments(InputMoments& moments, std::span<const float> scales) {
  const int64_t n = moments.columns;
  for (int64_t i = 0; i < n; ++i) {
    const double s = scales[static_cast<size_t>(i)];
    moments.mean_abs[static_cast<size_t>(i)] /= s;
    for (int64_t j = 0; j < n; ++j) {
      moments.gram[static_cast<size_t>(i * n + j)] /= s * scales[static_cast<size_t>(j)];
    }
  }
}

namespace {

/// The grid of a group's range shrunk to the part of least eᵀ H e, H being the group's block.
Grid clip_grid(const float* values, int64_t count, const float* hessian, int64_t stride, const Codec& codec,
               int steps) {
  Grid best = widest_grid(values, count, codec);
  double least = -1;
  std::vector<float> clipped(static_cast<size_t>(count));
  std::vector<float> error(static_cast<size_t>(count));
  float most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(values[i]));
  for (int step = 0; step < steps; ++step) {
    const float limit = most * (1 - static_cast<float>(step) / scale_steps);
    for (int64_t i = 0; i < count; ++i)
      clipped[static_cast<size_t>(i)] = std::clamp(values[i], -limit, limit);
    const Grid grid = widest_grid(clipped.data(), count, codec);
    if (grid.delta == 0) break;
    for (int64_t i = 0; i < count; ++i) {
      error[static_cast<size_t>(i)] = decode(code_of(values[i], grid), grid) - values[i];
    }
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      float along = 0;
      for (int64_t j = 0; j < count; ++j) along += hessian[i * stride + j] * error[static_cast<size_t>(j)];
      sum += static_cast<double>(along) * error[static_cast<size_t>(i)];
    }
    if (least >= 0 && sum >= least) continue;
    least = sum;
    best = grid;
  }
  return best;
}

}  // namespace

SolvedMatrix clip_matrix(std::span<const float> weights, const InputMoments& moments, const Codec& codec,
                         bool clip, ThreadPool& pool) {
  const int64_t columns = moments.columns;
  const auto rows = static_cast<int64_t>(weights.size()) / columns;
  const std::vector<float> hessian(moments.gram.begin(), moments.gram.end());
  std::vector<float> energy;
  energy.reserve(static_cast<size_t>(columns));
  for (int64_t i = 0; i < columns; ++i) energy.push_back(hessian[static_cast<size_t>(i * (columns + 1))]);
  return solve_rows(weights, rows, columns, codec, hessian.data(), pool,
                    [&](const float* row, RowGrids& grids, uint8_t* codes, float* decoded) {
                      choose_row_grids(row, energy.data(), columns, codec, grids,
                                       [&](const float* values, const float*, int64_t count) {
                                         const int64_t at = values - row;
                                         return clip_grid(values, count, hessian.data() + at * (columns + 1),
                                                          columns, codec, clip ? clip_steps : 1);
                                       });
                      round_row(row, columns, codec, grids, codes, decoded);
                    });
}

}  // namespace hexlm
