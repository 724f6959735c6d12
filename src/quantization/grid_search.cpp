#include "quantization/grid_search.hpp"

#include <algorithm>
#include <cmath>

#include "base/half.hpp"

namespace hexlm {
namespace {

/// Steps in which the range is shrunk; spec D.1 finds 20 to 40 enough for 4 bits.
constexpr int shrink_steps = 48;
/// Least squares and reassignment converge in two or three turns.
constexpr int refine_rounds = 4;

/// How far clipping may go: the fewer codes, the more the bulk of the values gains from it.
float least_shrink(int bits) {
  if (bits == 2) return 0.35F;
  return bits == 3 ? 0.45F : 0.6F;
}

/// Remembers the grid of least error of those that were tried.
class BestGrid {
 public:
  BestGrid(const float* values, const float* importance, int64_t count, const Codec& codec)
      : values_(values), importance_(importance), count_(count), codec_(codec) {}

  void consider(float delta, float offset) {
    const Grid grid = make_grid(codec_, delta, offset);
    if (grid.delta == 0 || !std::isfinite(grid.delta) || !std::isfinite(grid.offset)) return;
    const double error = row_kernels().grid_error(values_, importance_, count_, grid);
    if (found_ && error >= error_) return;
    found_ = true;
    error_ = error;
    grid_ = grid;
  }

  /// Solves for the scale (and offset) that fit the codes of the best grid.
  void refine() {
    double qq = 0;
    double q1 = 0;
    double n = 0;
    double qw = 0;
    double w1 = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const double importance = importance_[i];
      const double q = static_cast<int>(code_of(values_[i], grid_)) - grid_.zero;
      qq += importance * q * q;
      q1 += importance * q;
      n += importance;
      qw += importance * q * values_[i];
      w1 += importance * values_[i];
    }
    if (codec_.symmetric) {
      if (qq > 0) consider(static_cast<float>(qw / qq), 0);
      return;
    }
    const double determinant = qq * n - q1 * q1;
    if (determinant <= 1e-12 * qq * n) return;
    consider(static_cast<float>((qw * n - q1 * w1) / determinant),
             static_cast<float>((qq * w1 - q1 * qw) / determinant));
  }

  bool found() const { return found_; }
  const Grid& grid() const { return grid_; }

 private:
  const float* values_;
  const float* importance_;
  int64_t count_;
  const Codec& codec_;
  bool found_ = false;
  double error_ = 0;
  Grid grid_;
};

void shrink_symmetric(float magnitude, const Codec& codec, BestGrid& best) {
  // The longer side holds 2^(bits−1) steps; starting 6 % above its half-way code covers "no clipping" on
  // either side.
  const float widest = 1.06F * magnitude / (static_cast<float>(1 << (codec.bits - 1)) - 0.5F);
  for (int i = 0; i < shrink_steps; ++i) {
    const float shrink = 1 - (1 - least_shrink(codec.bits)) * static_cast<float>(i) / shrink_steps;
    best.consider(shrink * widest, 0);
    best.consider(-shrink * widest, 0);
  }
}

void shrink_asymmetric(float least, float greatest, const Codec& codec, BestGrid& best) {
  const float codes = static_cast<float>((1 << codec.bits) - 1);
  for (int i = 0; i < shrink_steps; ++i) {
    const float shrink = 1 - (1 - least_shrink(codec.bits)) * static_cast<float>(i) / shrink_steps;
    const float range = shrink * (greatest - least);
    best.consider(range / codes, shrink * least);
    best.consider(range / codes, (least + greatest - range) / 2);
  }
}

struct Extremes {
  float least = 0;
  float greatest = 0;
  float magnitude() const { return std::max(-least, greatest); }
};

Extremes extremes_of(const float* values, int64_t count) {
  Extremes found;
  for (int64_t i = 0; i < count; ++i) {
    found.least = std::min(found.least, values[i]);
    found.greatest = std::max(found.greatest, values[i]);
  }
  return found;
}

}  // namespace

Grid make_grid(const Codec& codec, float delta, float offset) {
  Grid grid;
  grid.delta = half_to_float(float_to_half(delta));
  if (codec.symmetric) {
    grid.zero = 1 << (codec.bits - 1);
    grid.lowest = static_cast<float>(-grid.zero);
    grid.highest = static_cast<float>(grid.zero - 1);
  } else {
    grid.offset = half_to_float(float_to_half(offset));
    grid.highest = static_cast<float>((1 << codec.bits) - 1);
  }
  return grid;
}

Grid make_two_level_grid(const Codec& codec, uint16_t row_scale, int group_scale) {
  return make_grid(codec, half_to_float(row_scale) * static_cast<float>(group_scale), 0);
}

Grid widest_grid(const float* values, int64_t count, const Codec& codec) {
  float least = 0;
  float greatest = 0;
  for (int64_t i = 0; i < count; ++i) {
    least = std::min(least, values[i]);
    greatest = std::max(greatest, values[i]);
  }
  const auto codes = static_cast<float>((1 << codec.bits) - 1);
  if (!codec.symmetric) return make_grid(codec, greatest / codes - least / codes, least);
  return make_grid(codec, std::max(-least, greatest) / static_cast<float>((1 << (codec.bits - 1)) - 1), 0);
}

int least_group_scale(const Codec& codec) { return -(1 << (codec.scale_bits - 1)); }
int most_group_scale(const Codec& codec) { return (1 << (codec.scale_bits - 1)) - 1; }

Grid search_grid(const float* values, const float* importance, int64_t count, const Codec& codec) {
  const Extremes range = extremes_of(values, count);
  BestGrid best(values, importance, count, codec);
  if (range.magnitude() > 0) {
    if (codec.symmetric) {
      shrink_symmetric(range.magnitude(), codec, best);
    } else {
      shrink_asymmetric(range.least, range.greatest, codec, best);
    }
    for (int round = 0; round < refine_rounds && best.found(); ++round) best.refine();
  }
  return best.found() ? best.grid() : make_grid(codec, 0, 0);
}

void fit_two_level(const float* row, const float* importance, int64_t columns, const Codec& codec,
                   RowGrids& grids) {
  const auto groups = static_cast<int64_t>(grids.groups.size());
  float largest = 0;
  for (const Grid& grid : grids.groups) largest = std::max(largest, std::fabs(grid.delta));
  grids.group_scales.assign(static_cast<size_t>(groups), 0);
  grids.row_scale = 0;
  const std::vector<Grid> wanted = std::move(grids.groups);
  RowGrids trial;
  double least = -1;
  // The row scale that makes the largest group scale the largest integer, and a few below it: with few
  // integers, which of them the others fall on matters more than the largest group's exact scale.
  const int trials = codec.scale_bits <= 5 ? 9 : 3;
  for (int step = 0; step < trials; ++step) {
    trial.row_scale = float_to_half(largest / static_cast<float>(most_group_scale(codec)) *
                                    (1 - 0.02F * static_cast<float>(step)));
    const float unit = half_to_float(trial.row_scale);
    trial.groups.clear();
    trial.group_scales.clear();
    double error = 0;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = g * codec.group;
      const int64_t count = std::min(codec.group, columns - begin);
      const float ratio = unit == 0 ? 0 : wanted[static_cast<size_t>(g)].delta / unit;
      double least_here = -1;
      int scale_here = 0;
      for (int around = -1; around <= 1; ++around) {
        const int scale = std::clamp(static_cast<int>(std::lrintf(ratio)) + around, least_group_scale(codec),
                                     most_group_scale(codec));
        const Grid grid = make_two_level_grid(codec, trial.row_scale, scale);
        double here = 0;
        if (grid.delta == 0) {
          for (int64_t i = begin; i < begin + count; ++i) here += importance[i] * row[i] * row[i];
        } else {
          here = row_kernels().grid_error(row + begin, importance + begin, count, grid);
        }
        if (least_here >= 0 && here >= least_here) continue;
        least_here = here;
        scale_here = scale;
      }
      error += least_here;
      trial.group_scales.push_back(scale_here);
      trial.groups.push_back(make_two_level_grid(codec, trial.row_scale, scale_here));
    }
    if (least >= 0 && error >= least) continue;
    least = error;
    grids = trial;
  }
}

void prepare_rows(int64_t rows, int64_t columns, const Codec& codec, EncodedRows& encoded) {
  encoded.squared_error = 0;
  encoded.squared_norm = 0;
  encoded.data.resize(static_cast<size_t>(rows * codec.row_bytes(columns)));
  encoded.group_scales.resize(static_cast<size_t>(rows * codec.scale_row_bytes(columns)));
  encoded.scales.resize(static_cast<size_t>(codec.is_two_level() ? rows : rows * codec.groups(columns)));
  encoded.offsets.resize(codec.symmetric ? 0 : encoded.scales.size());
}

void store_row(const float* original, std::span<const uint8_t> codes, const Codec& codec,
               const RowGrids& grids, int64_t row, EncodedRows& encoded) {
  const auto columns = static_cast<int64_t>(codes.size());
  const auto groups = static_cast<int64_t>(grids.groups.size());
  pack_codes(codes, codec.bits, encoded.data.data() + row * codec.row_bytes(columns));
  if (codec.is_two_level()) {
    std::vector<uint8_t> scales;
    scales.reserve(grids.group_scales.size());
    for (const int scale : grids.group_scales) {
      scales.push_back(static_cast<uint8_t>(scale - least_group_scale(codec)));
    }
    pack_codes(scales, codec.scale_bits, encoded.group_scales.data() + row * codec.scale_row_bytes(columns));
    encoded.scales[static_cast<size_t>(row)] = grids.row_scale;
  } else {
    for (int64_t g = 0; g < groups; ++g) {
      const Grid& grid = grids.groups[static_cast<size_t>(g)];
      encoded.scales[static_cast<size_t>(row * groups + g)] = float_to_half(grid.delta);
      if (!codec.symmetric)
        encoded.offsets[static_cast<size_t>(row * groups + g)] = float_to_half(grid.offset);
    }
  }
  const int64_t group = codec.group > 0 ? codec.group : columns;
  for (int64_t i = 0; i < columns; ++i) {
    const Grid& grid = grids.groups[static_cast<size_t>(i / group)];
    const double difference = original[i] - decode(codes[static_cast<size_t>(i)], grid);
    encoded.squared_error += difference * difference;
    encoded.squared_norm += static_cast<double>(original[i]) * original[i];
  }
}

Grid split_grid(const float* values, int64_t count, const Codec& codec) {
  constexpr float p = 0.7F;
  constexpr float kappa = 1.01F;
  constexpr int iterations = 20;
  const Extremes range = extremes_of(values, count);
  if (range.magnitude() == 0) return make_grid(codec, 0, 0);
  const float codes = static_cast<float>((1 << codec.bits) - 1);
  Grid grid = codec.symmetric
                  ? make_grid(codec, range.magnitude() / static_cast<float>((1 << (codec.bits - 1)) - 1), 0)
                  : make_grid(codec, (range.greatest - range.least) / codes, range.least);
  if (grid.delta == 0 || !std::isfinite(grid.delta)) return grid;
  Grid best = grid;
  double least = -1;
  float beta = 10;
  for (int round = 0; round < iterations; ++round, beta *= kappa) {
    const double unit = std::pow(std::fabs(grid.delta), p);
    double error = 0;
    double shifted = 0;  // Σ (w − e) − Δ q
    double qw = 0;
    double qq = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float q = static_cast<float>(static_cast<int>(code_of(values[i], grid)) - grid.zero);
      const float e = (values[i] - (q * grid.delta + grid.offset)) / grid.delta;
      const float size = std::fabs(e);
      const float power = size == 0 ? 0 : std::pow(size, p - 1);
      error += static_cast<double>(size * power) * unit;
      const float kept = std::max(0.0F, size - power / beta);
      const float target = values[i] - std::copysign(kept, e) * grid.delta;
      shifted += target - q * grid.delta;
      qw += static_cast<double>(q) * target;
      qq += static_cast<double>(q) * q;
    }
    if (least >= 0 && error >= least) break;
    least = error;
    best = grid;
    grid = codec.symmetric
               ? make_grid(codec, qq > 0 ? static_cast<float>(qw / qq) : grid.delta, 0)
               : make_grid(codec, grid.delta, static_cast<float>(shifted / static_cast<double>(count)));
    if (grid.delta == 0) break;
  }
  return best;
}

}  // namespace hexlm
