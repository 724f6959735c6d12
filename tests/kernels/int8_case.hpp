#pragma once

#include "kernels/kernel_test.hpp"

namespace hexlm::test {

/// A packed matrix and its memory.
struct Packed {
  PackedMatrix matrix;
  std::vector<std::byte> codes;
  std::vector<uint16_t> scales;
  std::vector<uint16_t> offsets;

  explicit Packed(const MatrixView& view) {
    EXPECT_TRUE(describe_packed(view, matrix));
    // Filled with ones, so that whatever a pack leaves unwritten shows.
    codes.assign(packed_code_bytes(matrix), std::byte{0xFF});
    scales.assign(packed_scale_bytes(matrix) / 2, 0xFFFF);
    if (!view.codec.symmetric) offsets.assign(packed_scale_bytes(matrix) / 2, 0xFFFF);
    matrix.codes = codes.data();
    matrix.scales = scales.data();
    matrix.offsets = offsets.empty() ? nullptr : offsets.data();
  }
  int64_t tiles() const { return (matrix.rows + packed_tile_rows - 1) / packed_tile_rows; }
};

/// Quantized activations and their memory.
struct Rows {
  QuantizedRows view;
  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<int32_t> sums;

  Rows(int64_t rows, int64_t columns, int64_t block) {
    const int64_t padded = (columns + block - 1) / block * block;
    values.assign(static_cast<size_t>(rows * padded), 99);
    scales.assign(static_cast<size_t>(rows * padded / block), -1);
    sums.assign(scales.size(), -1);
    view = {.rows = rows,
            .padded_columns = padded,
            .block = block,
            .values = values.data(),
            .scales = scales.data(),
            .sums = sums.data()};
  }
};

/// One int8 product of random weights and activations.
struct Int8Case {
  StoredMatrix matrix;
  Packed packed;
  Rows x;
  std::vector<float> bias;
  int64_t tokens;

  Int8Case(Random& random, const Codec& codec, int64_t rows, int64_t columns, int64_t token_count)
      : matrix(random_matrix(random, codec, rows, columns)),
        packed(matrix.view()),
        x(token_count, columns, packed.matrix.block),
        tokens(token_count) {
    reference_kernels().pack(matrix.view(), packed.matrix, 0, packed.tiles());
    const std::vector<float> values = random.normals(token_count * columns);
    reference_kernels().quantize_rows(values.data(), columns, columns, x.view, 0, token_count);
    if (random.between(0, 1) == 0) bias = random.normals(rows);
  }

  std::vector<float> run(const KernelSet& set, int64_t tile_begin, int64_t tile_end) const {
    // Three floats more than a row: what lies between rows must stay untouched.
    const int64_t stride = matrix.rows + 3;
    std::vector<float> y(static_cast<size_t>(tokens * stride), -77.0F);
    set.int8_linear({.weight = &packed.matrix,
                     .x = x.view,
                     .bias = bias.empty() ? nullptr : bias.data(),
                     .y = y.data(),
                     .y_stride = stride,
                     .tile_begin = tile_begin,
                     .tile_end = tile_end});
    return y;
  }
  std::vector<float> run(const KernelSet& set) const { return run(set, 0, packed.tiles()); }

  double magnitude(int64_t token, int64_t row) const {
    std::vector<float> weights(static_cast<size_t>(matrix.columns));
    reference_kernels().dequantize_row(matrix.view(), row, weights.data());
    double sum = bias.empty() ? 0 : std::fabs(bias[row]);
    for (int64_t c = 0; c < matrix.columns; ++c) {
      sum += std::fabs(static_cast<double>(weights[c]) * x.values[token * x.view.padded_columns + c]) *
             x.scales[token * x.view.padded_columns / x.view.block + c / x.view.block];
    }
    return sum;
  }

  void compare(const std::vector<float>& actual, const std::vector<float>& expected) const {
    const int64_t stride = matrix.rows + 3;
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t row = 0; row < stride; ++row) {
        const int64_t at = token * stride + row;
        if (row >= matrix.rows) {
          ASSERT_EQ(actual[at], -77.0F) << "written past the rows";
          continue;
        }
        // Terms within a block may cancel; their magnitude bounds the block results'.
        ASSERT_TRUE(close(actual[at], expected[at], kernel_tolerance("int8_linear"), magnitude(token, row)))
            << "token " << token << " row " << row;
      }
    }
  }
};

}  // namespace hexlm::test
