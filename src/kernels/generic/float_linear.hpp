#pragma once

#include "kernels/generic/dequantize.hpp"

/// Matrix products with float activations for any vector type. Internal and static, see unroll.hpp.
namespace hexlm {
namespace {

/// Columns multiplied at a time: a panel of rows (128 KiB) stays in the second-level cache while the tokens
/// pass. Each chunk's sum is added to y whole, which also keeps rounding errors of long rows small.
constexpr int64_t chunk_of_columns = 1024;
/// Rows of a panel: their floats lie side by side, a column of the panel at a time.
constexpr int64_t panel_of_rows = 32;

/// y is computed in one order for every output, whatever rows and tokens are in a call: within a chunk of
/// columns, one sum goes along the columns, each product added with one rounding. It is the order in which
/// transformers' matrix library adds for such sizes, so that models which amplify rounding (qwen3_5) still
/// agree with it closely.
template <class Vector>
class FloatLinear {
 public:
  explicit FloatLinear(const FloatLinearArguments& arguments)
      : arguments_(arguments),
        weight_(arguments.weight),
        dequantizer_(arguments.weight),
        panel_(arguments.scratch),
        rows_(arguments.scratch + panel_of_rows * chunk_of_columns) {}

  void run() {
    for (int64_t row = arguments_.row_begin; row < arguments_.row_end; row += panel_of_rows) {
      const int64_t rows = smaller(panel_of_rows, arguments_.row_end - row);
      for (int64_t column = 0; column < weight_.columns; column += chunk_of_columns) {
        const int64_t columns = smaller(chunk_of_columns, weight_.columns - column);
        fill_panel(row, rows, column, columns);
        for (int64_t token = 0; token < arguments_.tokens; token += Vector::tile_tokens) {
          tile({row, rows, token, column, columns}, smaller(Vector::tile_tokens, arguments_.tokens - token));
        }
      }
    }
  }

 private:
  /// Vectors across the rows of a panel.
  static constexpr int width = panel_of_rows / Vector::lanes;

  /// panel_[column][row] for the chunk, rows that the matrix lacks left as they are: their sums are not
  /// stored.
  void fill_panel(int64_t row, int64_t rows, int64_t column, int64_t columns) {
    for (int64_t i = 0; i < rows; ++i) {
      dequantizer_.run(row + i, column, column + columns, rows_ + i * chunk_of_columns);
    }
    for (int64_t block = 0; block < rows; block += Vector::lanes) {
      for (int64_t at = 0; at < columns; at += Vector::lanes) {
        Vector square[Vector::lanes];
        unroll<Vector::lanes>([&](auto i) __attribute__((always_inline)) {
          square[i] = Vector::load(rows_ + (block + i) * chunk_of_columns + at);
        });
        Vector::transpose(square);
        unroll<Vector::lanes>([&](auto i) __attribute__((always_inline)) {
          square[i].store(panel_ + (at + i) * panel_of_rows + block);
        });
      }
    }
  }

  struct Tile {
    int64_t row;
    int64_t rows;
    int64_t token;
    int64_t column;
    int64_t columns;
  };

  void tile(const Tile& work, int64_t tokens) {
    unroll<Vector::tile_tokens>([&](auto i) __attribute__((always_inline)) {
      if (tokens == i + 1) tile_of<i + 1>(work);
    });
  }

  template <int Tokens>
  void tile_of(const Tile& work) {
    const float* x = arguments_.x + work.token * arguments_.x_stride + work.column;
    Vector sums[Tokens][width];
    for (int64_t column = 0; column < work.columns; ++column) {
      Vector w[width];
      unroll<width>([&](auto i) __attribute__((always_inline)) {
        w[i] = Vector::load(panel_ + column * panel_of_rows + i * Vector::lanes);
      });
      unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
        const Vector value(x[token * arguments_.x_stride + column]);
        unroll<width>([&](auto i) __attribute__((always_inline)) {
          sums[token][i] = Vector::fma(value, w[i], sums[token][i]);
        });
      });
    }
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) { put(work, token, sums[token]); });
  }

  void put(const Tile& work, int64_t token, const Vector (&sums)[width]) {
    float totals[panel_of_rows];
    unroll<width>([&](auto i) __attribute__((always_inline)) { sums[i].store(totals + i * Vector::lanes); });
    float* y = arguments_.y + (work.token + token) * arguments_.y_stride + work.row;
    const float* bias = arguments_.bias;
    for (int64_t i = 0; i < work.rows; ++i) {
      const bool last = work.column + work.columns == weight_.columns;
      const float sum = work.column == 0 ? totals[i] : y[i] + totals[i];
      y[i] = last && bias != nullptr ? sum + bias[work.row + i] : sum;
    }
  }

  const FloatLinearArguments& arguments_;
  const MatrixView& weight_;
  const Dequantizer<Vector> dequantizer_;
  float* panel_;
  float* rows_;
};

}  // namespace
}  // namespace hexlm
