#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/adapter.hpp"

namespace hexlm {

/// All elements of a float tensor.
std::vector<float> tensor_floats(const TensorView& tensor);

/// A low-rank matrix left · right: `left` [rows, rank], `right` [rank, columns], row-major.
struct LowRankProduct {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t rank = 0;
  std::vector<float> left;
  std::vector<float> right;
};

/// B·A of a module, as it is added to the weight: [outputs, inputs], or transposed. An embedding's weight is
/// [vocabulary, hidden], which is transposed already (spec E.2).
LowRankProduct low_rank_product(const AdapterModule& module, bool transposed);

/// sums[c] += scale · (left · right)[row, c]
void add_product_row(const LowRankProduct& product, double scale, int64_t row, std::span<double> sums);

}  // namespace hexlm
