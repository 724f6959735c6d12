#pragma once

#include "kernels/generic/dequantize.hpp"

/// Matrix products with float activations for any vector type. Internal and static, see unroll.hpp.
namespace hexlm {
namespace {

/// Columns multiplied at a time: a tile of tokens (6 × 4 KiB) stays in the first-level cache while a panel of
/// rows passes. Each chunk's sum is added to y whole, which also keeps rounding errors of long rows small.
constexpr int64_t chunk_of_columns = 1024;
/// Rows dequantized at a time for many tokens: 128 KiB, a part of a second-level cache.
constexpr int64_t panel_of_rows = 32;
/// Rows of a register tile.
constexpr int64_t rows_at_once = 4;

/// y is computed in one order for every output, whatever rows and tokens are in a call: per chunk of columns,
/// a lane's sum goes along the columns and the lanes are added at the end.
template <class Vector>
class FloatLinear {
 public:
  explicit FloatLinear(const FloatLinearArguments& arguments)
      : arguments_(arguments), weight_(arguments.weight), dequantizer_(arguments.weight) {}

  void run() {
    const int64_t panel = arguments_.tokens <= Vector::tile_tokens ? rows_at_once : panel_of_rows;
    for (int64_t row = arguments_.row_begin; row < arguments_.row_end; row += panel) {
      const int64_t rows = smaller(panel, arguments_.row_end - row);
      for (int64_t column = 0; column < weight_.columns; column += chunk_of_columns) {
        panel_chunk(row, rows, column, smaller(chunk_of_columns, weight_.columns - column));
      }
    }
  }

 private:
  void panel_chunk(int64_t row, int64_t rows, int64_t column, int64_t columns) {
    // Float weights are used where they lie.
    if (weight_.codec.kind == Codec::Kind::f32) {
      panel_ = weight_.data + (row * weight_.columns + column) * 4;
      panel_stride_ = weight_.columns * 4;
    } else {
      for (int64_t i = 0; i < rows; ++i) {
        dequantizer_.run(row + i, column, column + columns, arguments_.scratch + i * chunk_of_columns);
      }
      panel_ = reinterpret_cast<const std::byte*>(arguments_.scratch);
      panel_stride_ = chunk_of_columns * 4;
    }
    for (int64_t token = 0; token < arguments_.tokens; token += Vector::tile_tokens) {
      const int64_t tokens = smaller(Vector::tile_tokens, arguments_.tokens - token);
      for (int64_t i = 0; i < rows; i += rows_at_once) {
        tile({.row = row,
              .within = i,
              .rows = smaller(rows_at_once, rows - i),
              .token = token,
              .column = column,
              .columns = columns},
             tokens);
      }
    }
  }

  struct Tile {
    int64_t row;     ///< first row of the panel
    int64_t within;  ///< first row of the tile in the panel
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
    const std::byte* weights[rows_at_once];
    for (int64_t i = 0; i < rows_at_once; ++i) {
      // Rows that the matrix lacks repeat the last one.
      weights[i] = panel_ + (work.within + smaller(i, work.rows - 1)) * panel_stride_;
    }
    const float* x = arguments_.x + work.token * arguments_.x_stride + work.column;
    Vector sums[Tokens][rows_at_once];
    const auto add = [&](const Vector(&w)[rows_at_once], int token, Vector values)
                         __attribute__((always_inline)) {
                           unroll<rows_at_once>([&](auto i) __attribute__((always_inline)) {
                             sums[token][i] = Vector::fma(values, w[i], sums[token][i]);
                           });
                         };
    int64_t column = 0;
    for (; column + Vector::lanes <= work.columns; column += Vector::lanes) {
      Vector w[rows_at_once];
      unroll<rows_at_once>(
          [&](auto i) __attribute__((always_inline)) { w[i] = Vector::load(weights[i] + column * 4); });
      unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
        add(w, token, Vector::load(x + token * arguments_.x_stride + column));
      });
    }
    if (column < work.columns) {
      const int64_t some = work.columns - column;
      Vector w[rows_at_once];
      unroll<rows_at_once>([&](auto i) __attribute__((always_inline)) {
        w[i] = Vector::load_some(reinterpret_cast<const float*>(weights[i] + column * 4), some);
      });
      unroll<Tokens>([&](auto token) __attribute__((always_inline)) {
        add(w, token, Vector::load_some(x + token * arguments_.x_stride + column, some));
      });
    }
    unroll<Tokens>([&](auto token) __attribute__((always_inline)) { put(work, token, sums[token]); });
  }

  void put(const Tile& work, int64_t token, const Vector (&sums)[rows_at_once]) {
    float totals[rows_at_once];
    static_assert(sizeof totals == sizeof(Vector::sums(sums[0], sums[1], sums[2], sums[3])));
    const auto four = Vector::sums(sums[0], sums[1], sums[2], sums[3]);
    std::memcpy(totals, &four, sizeof totals);
    const int64_t row = work.row + work.within;
    float* y = arguments_.y + (work.token + token) * arguments_.y_stride + row;
    for (int64_t i = 0; i < work.rows; ++i) {
      const float bias = arguments_.bias != nullptr ? arguments_.bias[row + i] : 0.0F;
      y[i] = (work.column == 0 ? bias : y[i]) + totals[i];
    }
  }

  const FloatLinearArguments& arguments_;
  const MatrixView& weight_;
  const Dequantizer<Vector> dequantizer_;
  const std::byte* panel_ = nullptr;
  int64_t panel_stride_ = 0;
};

}  // namespace
}  // namespace hexlm
