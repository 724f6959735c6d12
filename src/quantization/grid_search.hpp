#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/codec.hpp"
#include "quantization/quantizer.hpp"
#include "quantization/row_kernels.hpp"

namespace hexlm {

/// The grids of one row: one a group, and for two-level codecs what they are made of.
struct RowGrids {
  std::vector<Grid> groups;
  uint16_t row_scale = 0;         ///< fp16
  std::vector<int> group_scales;  ///< groups[g].delta = fp16(row scale · group_scales[g])
};

/// The grid of `codec` with that scale and offset (ignored when symmetric), both rounded to fp16. Symmetric
/// grids use every code: −2^(bits−1) … 2^(bits−1) − 1 steps, and a negative delta turns the longer side.
Grid make_grid(const Codec& codec, float delta, float offset);
/// The grid of round to nearest (spec D.1), for codecs that the vector loops don't know and for parts of
/// rows.
Grid widest_grid(const float* values, int64_t count, const Codec& codec);
/// The two-level grid of group scale s.
Grid make_two_level_grid(const Codec& codec, uint16_t row_scale, int group_scale);
/// The least and greatest group scale.
int least_group_scale(const Codec& codec);
int most_group_scale(const Codec& codec);

/// q + zero for one weight.
inline uint8_t code_of(float value, const Grid& grid);
inline float decode(uint8_t code, const Grid& grid) {
  return static_cast<float>(static_cast<int32_t>(code) - grid.zero) * grid.delta + grid.offset;
}

/// Rounds a group's best grid: the scale and offset of least Σ importance · (w − ŵ)², found by shrinking the
/// range and then by weighted least squares (spec D.1). Values are finite.
Grid search_grid(const float* values, const float* importance, int64_t count, const Codec& codec);

/// Half-quadratic splitting with p = 0.7 (spec D.3), in units of the group's step so that its constants do
/// not depend on the weights' size. Solves for the offset; of symmetric codecs, which have none, for the
/// scale.
Grid split_grid(const float* values, int64_t count, const Codec& codec);

/// Grids of a whole row: each group's own choice, then for two-level codecs the row scale and the integers
/// nearest to them of least error. `choice` gives a group's grid.
template <class Choice>
void choose_row_grids(const float* row, const float* importance, int64_t columns, const Codec& codec,
                      RowGrids& grids, Choice choice);
/// For two-level codecs: replaces `grids.groups` by representable ones.
void fit_two_level(const float* row, const float* importance, int64_t columns, const Codec& codec,
                   RowGrids& grids);

/// Makes room for `rows` rows in an integer codec.
void prepare_rows(int64_t rows, int64_t columns, const Codec& codec, EncodedRows& encoded);
/// Stores row `row`: packs its codes, writes its scales and adds its error against `original`.
void store_row(const float* original, std::span<const uint8_t> codes, const Codec& codec,
               const RowGrids& grids, int64_t row, EncodedRows& encoded);

// ---

inline uint8_t code_of(float value, const Grid& grid) {
  if (grid.delta == 0) return static_cast<uint8_t>(grid.zero);
  // 1.5 · 2^23 leaves round-half-even in the low bits, as in the vector loops.
  constexpr float shift = 12582912.0F;
  float x = (value - grid.offset) / grid.delta;
  x = x < grid.lowest ? grid.lowest : x;
  x = x > grid.highest ? grid.highest : x;
  return static_cast<uint8_t>(static_cast<int32_t>((x + shift) - shift) + grid.zero);
}

template <class Choice>
void choose_row_grids(const float* row, const float* importance, int64_t columns, const Codec& codec,
                      RowGrids& grids, Choice choice) {
  const int64_t group = codec.group > 0 ? codec.group : columns;
  grids.groups.clear();
  for (int64_t begin = 0; begin < columns; begin += group) {
    grids.groups.push_back(choice(row + begin, importance + begin, std::min(group, columns - begin)));
  }
  if (codec.is_two_level()) fit_two_level(row, importance, columns, codec, grids);
}

}  // namespace hexlm
