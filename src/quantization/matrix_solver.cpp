#include "quantization/matrix_solver.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numeric>

#include "quantization/dense.hpp"
#include "quantization/grid_search.hpp"

namespace hexlm {
namespace {

/// Rows handled together: enough to use each row of the Hessian from the cache several times.
constexpr int64_t panel_rows = 32;
/// Columns between two updates of the rest (spec D.5).
constexpr int64_t feedback_block = 128;
constexpr double most_damping = 1;

std::vector<float> damped(const InputMoments& moments, double damping) {
  const int64_t n = moments.columns;
  double trace = 0;
  for (int64_t i = 0; i < n; ++i) trace += moments.gram[static_cast<size_t>(i * n + i)];
  std::vector<float> hessian(moments.gram.begin(), moments.gram.end());
  const auto added = static_cast<float>(damping * trace / static_cast<double>(n));
  for (int64_t i = 0; i < n; ++i) hessian[static_cast<size_t>(i * n + i)] += added;
  return hessian;
}

/// tr(E H Eᵀ) of `rows` rows.
double weighted_square(const float* e, int64_t rows, int64_t columns, const float* hessian) {
  std::vector<float> product(static_cast<size_t>(rows * columns));
  dense_kernels().multiply_add(e, columns, hessian, columns, product.data(), columns, rows, columns, columns);
  double sum = 0;
  for (int64_t i = 0; i < rows * columns; ++i)
    sum += static_cast<double>(product[static_cast<size_t>(i)]) * e[i];
  return sum;
}

void append(EncodedRows& all, const EncodedRows& part) {
  all.data.insert(all.data.end(), part.data.begin(), part.data.end());
  all.group_scales.insert(all.group_scales.end(), part.group_scales.begin(), part.group_scales.end());
  all.scales.insert(all.scales.end(), part.scales.begin(), part.scales.end());
  all.offsets.insert(all.offsets.end(), part.offsets.begin(), part.offsets.end());
  all.squared_error += part.squared_error;
  all.squared_norm += part.squared_norm;
}

/// In the panels' order, whoever computed them.
void join_panels(const std::vector<EncodedRows>& parts, const std::vector<double>& errors,
                 const std::vector<double>& norms, SolvedMatrix& solved) {
  double error = 0;
  double norm = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    append(solved.encoded, parts[p]);
    error += errors[p];
    norm += norms[p];
  }
  solved.output_error = norm > 0 ? std::sqrt(std::max(0.0, error) / norm) : 0;
}

}  // namespace

/// Some rows of one matrix on their way from floats to codes.
struct MatrixSolver::Panel {
  const Codec& codec;
  int64_t rows;
  int64_t columns;
  const float* target;
  const float* original;
  float* decoded;
  std::vector<RowGrids> grids;
  std::vector<uint8_t> codes;
  EncodedRows encoded;
  double error = 0;  // of outputs, squared
  double norm = 0;

  int64_t group_size() const { return codec.group > 0 ? codec.group : columns; }
  uint8_t& code(int64_t row, int64_t column) { return codes[static_cast<size_t>(row * columns + column)]; }
  Grid& grid(int64_t row, int64_t column) {
    return grids[static_cast<size_t>(row)].groups[static_cast<size_t>(column / group_size())];
  }
};

Result<MatrixSolver> MatrixSolver::create(const InputMoments& moments, const SolverOptions& options,
                                          const std::string& what) {
  const int64_t n = moments.columns;
  MatrixSolver solver;
  solver.columns_ = n;
  solver.options_ = options;
  const auto energy = [&](int32_t i) {
    return moments.gram[static_cast<size_t>(i) * static_cast<size_t>(n + 1)];
  };
  solver.order_.resize(static_cast<size_t>(n));
  std::iota(solver.order_.begin(), solver.order_.end(), 0);
  std::sort(solver.order_.begin(), solver.order_.end(),
            [&](int32_t a, int32_t b) { return energy(a) != energy(b) ? energy(a) > energy(b) : a < b; });
  double trace = 0;
  for (int64_t i = 0; i < n; ++i) trace += energy(static_cast<int32_t>(i));
  std::vector<double> ordered(static_cast<size_t>(n * n));
  solver.factor_.resize(ordered.size());
  for (solver.damping_ = options.damping;; solver.damping_ *= 10) {
    for (int64_t i = 0; i < n; ++i) {
      const auto row = static_cast<size_t>(solver.order_[static_cast<size_t>(i)]) * static_cast<size_t>(n);
      for (int64_t j = 0; j < n; ++j) {
        ordered[static_cast<size_t>(i * n + j)] =
            moments.gram[row + static_cast<size_t>(solver.order_[static_cast<size_t>(j)])];
      }
      ordered[static_cast<size_t>(i * n + i)] += solver.damping_ * trace / static_cast<double>(n);
    }
    if (dense_kernels().factor_inverse(ordered.data(), n, solver.factor_.data())) break;
    if (solver.damping_ == 0 || solver.damping_ * 10 > most_damping) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: the Hessian of its {} inputs is singular even with damping {}", what, n,
                              solver.damping_),
                  "use more calibration text, or --method mse");
    }
  }
  solver.hessian_ = damped(moments, solver.damping_);
  for (int64_t i = 0; i < n; ++i)
    solver.importance_.push_back(solver.hessian_[static_cast<size_t>(i * n + i)]);
  return solver;
}

void MatrixSolver::choose_grids(Panel& panel) const {
  panel.grids.resize(static_cast<size_t>(panel.rows));
  for (int64_t row = 0; row < panel.rows; ++row) {
    choose_row_grids(panel.target + row * columns_, importance_.data(), columns_, panel.codec,
                     panel.grids[static_cast<size_t>(row)],
                     [&](const float* values, const float* importance, int64_t count) {
                       return search_grid(values, importance, count, panel.codec);
                     });
  }
}

void MatrixSolver::feed_back(Panel& panel) const {
  const int64_t n = columns_;
  std::vector<float> rest(static_cast<size_t>(panel.rows * n));
  for (int64_t row = 0; row < panel.rows; ++row) {
    for (int64_t i = 0; i < n; ++i) {
      rest[static_cast<size_t>(row * n + i)] = panel.target[row * n + order_[static_cast<size_t>(i)]];
    }
  }
  std::vector<float> errors(static_cast<size_t>(panel.rows * feedback_block));
  for (int64_t begin = 0; begin < n; begin += feedback_block) {
    const int64_t end = std::min(n, begin + feedback_block);
    for (int64_t row = 0; row < panel.rows; ++row) {
      float* w = rest.data() + row * n;
      for (int64_t i = begin; i < end; ++i) {
        const int32_t column = order_[static_cast<size_t>(i)];
        const Grid& grid = panel.grid(row, column);
        const uint8_t code = code_of(w[i], grid);
        const float* u = factor_.data() + i * n;
        const float error = (decode(code, grid) - w[i]) / u[i];
        panel.code(row, column) = code;
        errors[static_cast<size_t>(row * feedback_block + i - begin)] = error;
        for (int64_t j = i + 1; j < end; ++j) w[j] += error * u[j];
      }
    }
    if (end < n) {
      dense_kernels().multiply_add(errors.data(), feedback_block, factor_.data() + begin * n + end, n,
                                   rest.data() + end, n, panel.rows, end - begin, n - end);
    }
  }
}

namespace {

/// Coordinate descent on tr((W − Ŵ) H (W − Ŵ)ᵀ) of one panel, over codes and then scales and offsets. `slope`
/// is (W − Ŵ) H, kept current.
class Descent {
 public:
  Descent(int64_t columns, const float* hessian, const Codec& codec, float* decoded, float* slope)
      : n_(columns), hessian_(hessian), codec_(codec), decoded_(decoded), slope_(slope) {}

  /// Moves each code of a row to its best value given the others; how many changed.
  int64_t step_code(int64_t row, int64_t column, const Grid& grid, uint8_t& code) {
    if (grid.delta == 0) return 0;
    const float* h = hessian_ + column * n_;
    float& value = decoded_[row * n_ + column];
    const float slope = slope_[row * n_ + column];
    const uint8_t wanted = code_of(value + slope / h[column], grid);
    if (wanted == code) return 0;
    const float change = decode(wanted, grid) - value;
    if (2 * slope * change - h[column] * change * change <= 0) return 0;
    code = wanted;
    value += change;
    float* slopes = slope_ + row * n_;
    for (int64_t j = 0; j < n_; ++j) slopes[j] -= change * h[j];
    return 1;
  }

  /// Re-fits the grid of group `g` of a row to its codes.
  void step_grid(int64_t row, int64_t g, RowGrids& grids, const uint8_t* codes) {
    const int64_t size = codec_.group > 0 ? codec_.group : n_;
    const int64_t begin = g * size;
    const int64_t count = std::min(size, n_ - begin);
    Grid& grid = grids.groups[static_cast<size_t>(g)];
    if (grid.delta == 0) return;
    direction_.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      direction_[static_cast<size_t>(i)] = static_cast<float>(static_cast<int>(codes[begin + i]) - grid.zero);
    }
    along(row, begin, count);
    if (bend_ > 0) {
      const float wanted = grid.delta + static_cast<float>(along_ / bend_);
      if (codec_.is_two_level()) {
        int& scale = grids.group_scales[static_cast<size_t>(g)];
        const float unit = make_two_level_grid(codec_, grids.row_scale, 1).delta;
        const int next = unit == 0 ? scale
                                   : std::clamp(static_cast<int>(std::lrintf(wanted / unit)),
                                                least_group_scale(codec_), most_group_scale(codec_));
        const Grid candidate = make_two_level_grid(codec_, grids.row_scale, next);
        if (candidate.delta != 0 && move(row, begin, count, candidate.delta - grid.delta)) {
          scale = next;
          grid = candidate;
        }
      } else {
        const Grid candidate = make_grid(codec_, wanted, grid.offset);
        if (candidate.delta != 0 && move(row, begin, count, candidate.delta - grid.delta)) grid = candidate;
      }
    }
    if (codec_.symmetric) return;
    std::fill(direction_.begin(), direction_.end(), 1.0F);
    along(row, begin, count);
    if (bend_ <= 0) return;
    const Grid candidate = make_grid(codec_, grid.delta, grid.offset + static_cast<float>(along_ / bend_));
    if (move(row, begin, count, candidate.offset - grid.offset)) grid = candidate;
  }

 private:
  /// The slope and curvature along `direction_`.
  void along(int64_t row, int64_t begin, int64_t count) {
    along_ = 0;
    bend_ = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float* h = hessian_ + (begin + i) * n_ + begin;
      float sum = 0;
      for (int64_t j = 0; j < count; ++j) sum += h[j] * direction_[static_cast<size_t>(j)];
      bend_ += static_cast<double>(sum) * direction_[static_cast<size_t>(i)];
      along_ += static_cast<double>(slope_[row * n_ + begin + i]) * direction_[static_cast<size_t>(i)];
    }
  }

  bool move(int64_t row, int64_t begin, int64_t count, float step) {
    if (step == 0 || !std::isfinite(step)) return false;
    if (2 * step * along_ - static_cast<double>(step) * step * bend_ <= 0) return false;
    float* slopes = slope_ + row * n_;
    for (int64_t i = 0; i < count; ++i) {
      const float change = step * direction_[static_cast<size_t>(i)];
      if (change == 0) continue;
      decoded_[row * n_ + begin + i] += change;
      const float* h = hessian_ + (begin + i) * n_;
      for (int64_t j = 0; j < n_; ++j) slopes[j] -= change * h[j];
    }
    return true;
  }

  int64_t n_;
  const float* hessian_;
  const Codec& codec_;
  float* decoded_;
  float* slope_;
  std::vector<float> direction_;
  double along_ = 0;
  double bend_ = 0;
};

}  // namespace

void MatrixSolver::descend(Panel& panel) const {
  const int64_t n = columns_;
  const auto elements = static_cast<size_t>(panel.rows * n);
  const auto groups = static_cast<int64_t>(panel.grids[0].groups.size());
  std::vector<float> error(elements);
  std::vector<float> slope(elements);
  for (int sweep = 0; sweep < options_.descent_sweeps; ++sweep) {
    // From scratch every time: the updates below gather rounding errors.
    for (int64_t row = 0; row < panel.rows; ++row) {
      for (int64_t i = 0; i < n; ++i) {
        float& value = panel.decoded[row * n + i];
        value = decode(panel.code(row, i), panel.grid(row, i));
        error[static_cast<size_t>(row * n + i)] = panel.target[row * n + i] - value;
      }
    }
    std::fill(slope.begin(), slope.end(), 0.0F);
    dense_kernels().multiply_add(error.data(), n, hessian_.data(), n, slope.data(), n, panel.rows, n, n);
    Descent descent(n, hessian_.data(), panel.codec, panel.decoded, slope.data());
    int64_t changed = 0;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t row = 0; row < panel.rows; ++row) {
        changed += descent.step_code(row, i, panel.grid(row, i), panel.code(row, i));
      }
    }
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t row = 0; row < panel.rows; ++row) {
        descent.step_grid(row, g, panel.grids[static_cast<size_t>(row)], &panel.code(row, 0));
      }
    }
    if (changed == 0) break;
  }
}

void MatrixSolver::finish(Panel& panel) const {
  const int64_t n = columns_;
  prepare_rows(panel.rows, n, panel.codec, panel.encoded);
  std::vector<float> error(static_cast<size_t>(panel.rows * n));
  for (int64_t row = 0; row < panel.rows; ++row) {
    for (int64_t i = 0; i < n; ++i) {
      const float value = decode(panel.code(row, i), panel.grid(row, i));
      panel.decoded[row * n + i] = value;
      error[static_cast<size_t>(row * n + i)] = value - panel.original[row * n + i];
    }
    store_row(panel.original + row * n, {&panel.code(row, 0), static_cast<size_t>(n)}, panel.codec,
              panel.grids[static_cast<size_t>(row)], row, panel.encoded);
  }
  panel.error = weighted_square(error.data(), panel.rows, n, hessian_.data());
  panel.norm = weighted_square(panel.original, panel.rows, n, hessian_.data());
}

SolvedMatrix MatrixSolver::solve(std::span<const float> target, std::span<const float> original,
                                 const Codec& codec, ThreadPool& pool) const {
  const auto rows = static_cast<int64_t>(target.size()) / columns_;
  const int64_t panels = (rows + panel_rows - 1) / panel_rows;
  SolvedMatrix solved;
  solved.decoded.resize(target.size());
  std::vector<EncodedRows> parts(static_cast<size_t>(panels));
  std::vector<double> errors(static_cast<size_t>(panels));
  std::vector<double> norms(static_cast<size_t>(panels));
  pool.run(panels, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * panel_rows * columns_;
      Panel panel{codec,
                  std::min(panel_rows, rows - p * panel_rows),
                  columns_,
                  target.data() + first,
                  original.data() + first,
                  solved.decoded.data() + first,
                  {},
                  {},
                  {}};
      panel.codes.resize(static_cast<size_t>(panel.rows * columns_));
      choose_grids(panel);
      feed_back(panel);
      descend(panel);
      finish(panel);
      const auto slot = static_cast<size_t>(p);
      parts[slot] = std::move(panel.encoded);
      errors[slot] = panel.error;
      norms[slot] = panel.norm;
    }
  });
  join_panels(parts, errors, norms, solved);
  return solved;
}

SolvedMatrix solve_rows(std::span<const float> weights, int64_t rows, int64_t columns, const Codec& codec,
                        const float* hessian, ThreadPool& pool, const RowChoice& choose) {
  const int64_t panels = (rows + panel_rows - 1) / panel_rows;
  SolvedMatrix solved;
  solved.decoded.resize(weights.size());
  std::vector<EncodedRows> parts(static_cast<size_t>(panels));
  std::vector<double> errors(static_cast<size_t>(panels));
  std::vector<double> norms(static_cast<size_t>(panels));
  pool.run(panels, 1, [&](int64_t begin, int64_t end, int) {
    RowGrids grids;
    std::vector<uint8_t> codes(static_cast<size_t>(columns));
    for (int64_t p = begin; p < end; ++p) {
      const int64_t count = std::min(panel_rows, rows - p * panel_rows);
      const float* from = weights.data() + p * panel_rows * columns;
      float* decoded = solved.decoded.data() + p * panel_rows * columns;
      const auto slot = static_cast<size_t>(p);
      prepare_rows(count, columns, codec, parts[slot]);
      std::vector<float> error(static_cast<size_t>(count * columns));
      for (int64_t row = 0; row < count; ++row) {
        choose(from + row * columns, grids, codes.data(), decoded + row * columns);
        store_row(from + row * columns, codes, codec, grids, row, parts[slot]);
      }
      for (size_t i = 0; i < error.size(); ++i) error[i] = decoded[i] - from[i];
      errors[slot] = weighted_square(error.data(), count, columns, hessian);
      norms[slot] = weighted_square(from, count, columns, hessian);
    }
  });
  join_panels(parts, errors, norms, solved);
  return solved;
}

bool correct_drift(InputMoments& moments, double damping, std::span<float> weights) {
  const int64_t n = moments.columns;
  std::vector<double> system = moments.gram;
  double trace = 0;
  for (int64_t i = 0; i < n; ++i) trace += moments.gram[static_cast<size_t>(i * (n + 1))];
  for (int64_t i = 0; i < n; ++i) {
    system[static_cast<size_t>(i * (n + 1))] += damping * trace / static_cast<double>(n);
  }
  for (size_t i = 0; i < moments.cross.size(); ++i) moments.cross[i] -= moments.gram[i];
  const double* residual = moments.residual.empty() ? nullptr : moments.residual.data();
  const bool solved =
      dense_kernels().add_correction(system.data(), moments.cross.data(), residual, n, weights.data(),
                                     static_cast<int64_t>(weights.size()) / n);
  moments.cross = {};
  moments.residual = {};
  return solved;
}

}  // namespace hexlm
