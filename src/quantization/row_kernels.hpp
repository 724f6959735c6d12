#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "formats/codec.hpp"

namespace hexlm {

/// What stops a row from being encoded; `index` is the element (or, for a scale, the group) in the row.
struct RowFault {
  enum class Kind : uint8_t { none, not_finite, scale_overflow };
  Kind kind = Kind::none;
  int64_t index = 0;
};

/// Where one encoded row goes. `codes` holds one unsigned code an element, not yet packed; the sums are added
/// to.
struct RowTarget {
  uint8_t* codes = nullptr;
  uint16_t* scales = nullptr;
  uint16_t* offsets = nullptr;  ///< used by asymmetric codecs only
  double squared_error = 0;
  double squared_norm = 0;
};

/// How the elements of one group are stored: w ≈ delta · q + offset with q = clamp(round((w − offset) /
/// delta), lowest, highest); the stored code is q + zero. delta and offset are fp16 values.
struct Grid {
  float delta = 0;
  float offset = 0;
  float lowest = 0;
  float highest = 0;
  int32_t zero = 0;
};

/// The inner loops of export and synthesis, compiled once per instruction set. Every set computes the same
/// bits: a package does not depend on the machine that wrote it.
struct RowKernels {
  const char* name;
  /// `count` stored elements (f32, f16 or bf16, any alignment) to float, exactly.
  void (*widen)(const std::byte* source, DType dtype, int64_t count, float* out);
  /// The index of the first NaN or infinity, or −1.
  int64_t (*find_not_finite)(const float* values, int64_t count);
  /// Round to nearest (encode_rtn) of one row of an integer codec.
  RowFault (*encode_row)(const float* row, int64_t columns, const Codec& codec, RowTarget& target);
  /// Σ importance · (w − ŵ)² of one group; delta is not 0.
  double (*grid_error)(const float* values, const float* importance, int64_t count, const Grid& grid);
};

/// The sets this processor runs, plainest first.
std::span<const RowKernels> available_row_kernels();
/// The last of them.
const RowKernels& row_kernels();

}  // namespace hexlm
