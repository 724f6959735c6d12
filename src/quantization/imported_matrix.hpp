#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/codec.hpp"

namespace hexlm {

/// The grid of an imported integer matrix: w = scale · code + offset, per row and group of `group` columns.
/// Row-major [rows, groups]. Exact in fp32: an importer that can't say so dequantizes instead.
struct ImportedGrid {
  int bits = 4;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t group = 0;  ///< 0: one group a row
  std::vector<float> scales;
  std::vector<float> offsets;
  /// Integer zero points, offset = −scale · zero point; empty for formats that store offsets.
  std::vector<int32_t> zeros;
  /// The group of each column where groups are no ranges of columns (act-order); else empty.
  std::vector<int32_t> column_groups;

  /// Computes `offsets` from `zeros`.
  void set_offsets();

  int64_t groups() const { return group == 0 ? 1 : (columns + group - 1) / group; }
};

/// The package codec that holds the grid to the last bit: symmetric when every offset is
/// −2^(bits−1) · scale, with fp16 scales where these hold every value. Nothing when no codec does: a value
/// beyond fp16's range (kernels that take int8 activations round to fp16), or a group that is no codec's.
std::optional<Codec> codec_that_fits(const ImportedGrid& grid);

/// Stores codes [rows · columns] on the grid. The view owns its bytes.
WeightView store_codes(const std::string& name, const ImportedGrid& grid, const Codec& codec,
                       std::span<const uint8_t> codes);
/// The weights as float32, each rounded once.
WeightView store_floats(const std::string& name, const ImportedGrid& grid, std::span<const uint8_t> codes);
/// A float32 view that owns its values, [rows, columns].
WeightView store_floats(const std::string& name, std::vector<int64_t> shape, std::vector<float> values);
/// A view without bytes.
WeightView describe_weight(const std::string& name, const Codec& codec, std::vector<int64_t> shape);

}  // namespace hexlm
