#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "formats/tensor.hpp"
#include "quantization/imported_matrix.hpp"
#include "quantization/quantization_scheme.hpp"

namespace hexlm {

/// The stored parts of one quantized linear module; those that its format has not stay nullptr.
struct PackedModule {
  std::string name;  ///< canonical, without the part's suffix
  std::string path;  ///< as in the checkpoint
  const TensorView* codes = nullptr;
  const TensorView* scales = nullptr;
  const TensorView* zeros = nullptr;
  const TensorView* groups = nullptr;  ///< g_idx
  const TensorView* shape = nullptr;   ///< weight_shape
};

/// The grid of an integer module (spec D.9), every part checked against the others. Errors: bad_input naming
/// tensor, expected and got.
Result<ImportedGrid> read_grid(const PackedModule& module, const QuantizationScheme& scheme);
/// Codes [rows, columns] of a module whose grid was read.
std::vector<uint8_t> read_codes(const PackedModule& module, const QuantizationScheme& scheme,
                                const ImportedGrid& grid);

/// An FP8 module's shape; checks the scales' shape. Errors: as read_grid.
Result<std::vector<int64_t>> check_fp8(const PackedModule& module, const QuantizationScheme& scheme);
/// E4M3 · scale, rounded once to float32.
std::vector<float> decode_fp8(const PackedModule& module, const QuantizationScheme& scheme);

}  // namespace hexlm
