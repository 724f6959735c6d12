#include "quantization/packed_module.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <span>

#include "base/text.hpp"
#include "quantization/low_rank.hpp"

namespace hexlm {
namespace {

using Format = QuantizationScheme::Format;

/// Where AWQ's interleaved nibbles of a word lie: column j of eight is nibble awq_nibble[j].
constexpr std::array<int, 8> awq_nibble = {0, 4, 1, 5, 2, 6, 3, 7};

tl::unexpected<Error> bad_part(const PackedModule& module, const std::string& what) {
  return fail(ErrorCode::bad_input, fmt::format("module '{}': {}", module.path, what),
              "the checkpoint is damaged, or config.json is of another one");
}

Status expect_part(const PackedModule& module, const TensorView* part, const char* what, DType dtype,
                   const std::vector<int64_t>& shape) {
  if (part == nullptr) return bad_part(module, fmt::format("lacks its {}", what));
  if (part->dtype == dtype && part->shape == shape) return {};
  return bad_part(module,
                  fmt::format("tensor '{}' is {} {}, expected {} {}", part->name, to_string(part->dtype),
                              format_shape(part->shape), to_string(dtype), format_shape(shape)));
}

uint32_t word_at(const TensorView& tensor, int64_t index) {
  uint32_t word;
  std::memcpy(&word, tensor.bytes.data() + index * 4, sizeof(word));
  return word;
}

/// Value `index` of a stream of `bits`-bit values over words `stride` apart, the first at `first`.
uint32_t stream_value(const TensorView& tensor, int64_t first, int64_t stride, int64_t index, int bits) {
  const int64_t bit = index * bits;
  const int64_t word = bit / 32;
  const int shift = static_cast<int>(bit % 32);
  uint64_t value = word_at(tensor, first + word * stride) >> shift;
  if (shift + bits > 32) {
    value |= uint64_t{word_at(tensor, first + (word + 1) * stride)} << (32 - shift);
  }
  return static_cast<uint32_t>(value) & ((1U << bits) - 1);
}

/// Value `index` where words hold ⌊32 / bits⌋ values and none spills over.
uint32_t whole_value(const TensorView& tensor, int64_t first, int64_t stride, int64_t index, int bits) {
  const int per_word = 32 / bits;
  const uint32_t word = word_at(tensor, first + index / per_word * stride);
  return word >> (index % per_word * bits) & ((1U << bits) - 1);
}

Status read_scales(const PackedModule& module, int64_t first, int64_t second, bool group_major,
                   ImportedGrid& grid) {
  if (module.scales == nullptr) return bad_part(module, "lacks its scales");
  const DType dtype = module.scales->dtype;
  const bool is_float = dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32;
  HEXLM_TRY(expect_part(module, module.scales, "scales", is_float ? dtype : DType::f16, {first, second}));
  const std::vector<float> stored = tensor_floats(*module.scales);
  for (size_t i = 0; i < stored.size(); ++i) {
    if (std::isfinite(stored[i])) continue;
    return bad_part(module, fmt::format("element {} of '{}' is {}, expected a finite scale", i,
                                        module.scales->name, stored[i]));
  }
  grid.scales.resize(stored.size());
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t group = 0; group < grid.groups(); ++group) {
      const int64_t from = group_major ? group * grid.rows + row : row * grid.groups() + group;
      grid.scales[static_cast<size_t>(row * grid.groups() + group)] = stored[static_cast<size_t>(from)];
    }
  }
  return {};
}

/// g_idx: the group of every input channel. Left empty where it says what ranges of columns say.
Status read_column_groups(const PackedModule& module, ImportedGrid& grid) {
  if (module.groups == nullptr) return {};
  HEXLM_TRY(expect_part(module, module.groups, "g_idx", DType::i32, {grid.columns}));
  std::vector<int32_t> groups(static_cast<size_t>(grid.columns));
  std::memcpy(groups.data(), module.groups->bytes.data(), module.groups->bytes.size());
  bool in_order = true;
  const int64_t group = grid.group == 0 ? grid.columns : grid.group;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] < 0 || groups[i] >= grid.groups()) {
      return bad_part(module, fmt::format("element {} of '{}' is {}, expected a group of 0 to {}", i,
                                          module.groups->name, groups[i], grid.groups() - 1));
    }
    in_order = in_order && groups[i] == static_cast<int64_t>(i) / group;
  }
  if (!in_order) grid.column_groups = std::move(groups);
  return {};
}

/// Sizes of a matrix [rows, columns], and that they are worth the name.
Status set_sizes(const PackedModule& module, int64_t rows, int64_t columns, int64_t group,
                 ImportedGrid& grid) {
  if (rows < 1 || columns < 1 || rows > std::numeric_limits<int32_t>::max() ||
      columns > std::numeric_limits<int32_t>::max()) {
    return bad_part(module, fmt::format("has {} rows and {} columns", rows, columns));
  }
  if (group > 0 && group < columns && columns % group != 0) {
    return bad_part(module, fmt::format("has {} input channels, expected a multiple of the group size {}",
                                        columns, group));
  }
  grid.rows = rows;
  grid.columns = columns;
  grid.group = group >= columns ? 0 : group;
  return {};
}

Result<ImportedGrid> gptq_grid(const PackedModule& module, const QuantizationScheme& scheme) {
  const std::vector<int64_t>& shape = module.codes->shape;
  if (shape.size() != 2 || shape[0] < 1 || shape[0] > std::numeric_limits<int32_t>::max() ||
      shape[0] * 32 % scheme.bits != 0) {
    return bad_part(module, fmt::format("tensor '{}' has shape {}, expected packed rows of {} bits",
                                        module.codes->name, format_shape(shape), scheme.bits));
  }
  ImportedGrid grid;
  grid.bits = scheme.bits;
  HEXLM_TRY(set_sizes(module, shape[1], shape[0] * 32 / scheme.bits, scheme.group, grid));
  HEXLM_TRY(expect_part(module, module.codes, "qweight", DType::i32, shape));
  HEXLM_TRY(read_scales(module, grid.groups(), grid.rows, true, grid));
  if (grid.rows * grid.bits % 32 != 0) {
    return bad_part(module,
                    fmt::format("has {} outputs of {} bits, expected whole words", grid.rows, grid.bits));
  }
  const int64_t words = grid.rows * grid.bits / 32;
  HEXLM_TRY(expect_part(module, module.zeros, "qzeros", DType::i32, {grid.groups(), words}));
  // v1 stores the zero point less one, and kernels add it back without masking (spec D.9).
  const int32_t added = scheme.format == Format::gptq_v1 ? 1 : 0;
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t group = 0; group < grid.groups(); ++group) {
      grid.zeros.push_back(
          added + static_cast<int32_t>(stream_value(*module.zeros, group * words, 1, row, grid.bits)));
    }
  }
  HEXLM_TRY(read_column_groups(module, grid));
  grid.set_offsets();
  return grid;
}

Result<ImportedGrid> awq_grid(const PackedModule& module, const QuantizationScheme& scheme) {
  const std::vector<int64_t>& shape = module.codes->shape;
  if (shape.size() != 2 || shape[1] < 1 || shape[1] > std::numeric_limits<int32_t>::max() / 8) {
    return bad_part(module, fmt::format("tensor '{}' has shape {}, expected a matrix", module.codes->name,
                                        format_shape(shape)));
  }
  ImportedGrid grid;
  HEXLM_TRY(set_sizes(module, shape[1] * 8, shape[0], scheme.group, grid));
  HEXLM_TRY(expect_part(module, module.codes, "qweight", DType::i32, shape));
  HEXLM_TRY(read_scales(module, grid.groups(), grid.rows, true, grid));
  HEXLM_TRY(expect_part(module, module.zeros, "qzeros", DType::i32, {grid.groups(), shape[1]}));
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t group = 0; group < grid.groups(); ++group) {
      const uint32_t word = word_at(*module.zeros, group * shape[1] + row / 8);
      grid.zeros.push_back(static_cast<int32_t>(word >> (4 * awq_nibble[static_cast<size_t>(row % 8)]) & 15));
    }
  }
  grid.set_offsets();
  return grid;
}

Result<ImportedGrid> pack_quantized_grid(const PackedModule& module, const QuantizationScheme& scheme) {
  HEXLM_TRY(expect_part(
      module, module.shape, "weight_shape",
      module.shape != nullptr && module.shape->dtype == DType::i32 ? DType::i32 : DType::i64, {2}));
  std::array<int64_t, 2> sizes = {};
  for (size_t i = 0; i < 2; ++i) {
    int32_t narrow = 0;
    const bool is_wide = module.shape->dtype == DType::i64;
    std::memcpy(is_wide ? static_cast<void*>(&sizes[i]) : &narrow,
                module.shape->bytes.data() + i * (is_wide ? 8 : 4), is_wide ? 8 : 4);
    if (!is_wide) sizes[i] = narrow;
  }
  ImportedGrid grid;
  HEXLM_ASSIGN(grid.bits, scheme.bits_for(module.path));
  HEXLM_TRY(set_sizes(module, sizes[0], sizes[1], 0, grid));
  const int64_t per_word = 32 / grid.bits;
  const int64_t words = (grid.columns + per_word - 1) / per_word;
  HEXLM_TRY(expect_part(module, module.codes, "weight_packed", DType::i32, {grid.rows, words}));
  if (module.scales == nullptr || module.scales->shape.size() != 2 || module.scales->shape[1] < 1) {
    return bad_part(module, "lacks its weight_scale, or it is no matrix");
  }
  const int64_t groups = module.scales->shape[1];
  if (groups > 1 && grid.columns % groups != 0) {
    return bad_part(module, fmt::format("has {} columns in {} groups", grid.columns, groups));
  }
  grid.group = groups == 1 ? 0 : grid.columns / groups;
  HEXLM_TRY(read_scales(module, grid.rows, groups, false, grid));
  // Codes and zero points are both stored 2^(bits−1) above their signed value, which cancels.
  grid.zeros.assign(grid.scales.size(), 1 << (grid.bits - 1));
  if (module.zeros != nullptr) {
    const int64_t zero_words = (grid.rows + per_word - 1) / per_word;
    HEXLM_TRY(expect_part(module, module.zeros, "weight_zero_point", DType::i32, {zero_words, groups}));
    for (int64_t row = 0; row < grid.rows; ++row) {
      for (int64_t group = 0; group < groups; ++group) {
        grid.zeros[static_cast<size_t>(row * groups + group)] =
            static_cast<int32_t>(whole_value(*module.zeros, group, groups, row, grid.bits));
      }
    }
  }
  HEXLM_TRY(read_column_groups(module, grid));
  grid.set_offsets();
  return grid;
}

float e4m3_to_float(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

/// Rows and columns that share a scale, from the scales' shape where it says more than the configuration.
std::array<int64_t, 2> fp8_block(const PackedModule& module, const QuantizationScheme& scheme) {
  const std::vector<int64_t>& shape = module.codes->shape;
  const int64_t count = module.scales->elements();
  if (count == 1) return {shape[0], shape[1]};
  if (module.scales->shape == std::vector<int64_t>{shape[0], 1}) return {1, shape[1]};
  return {scheme.block_rows, scheme.block_columns};
}

}  // namespace

Result<ImportedGrid> read_grid(const PackedModule& module, const QuantizationScheme& scheme) {
  switch (scheme.format) {
    case Format::gptq_v1:
    case Format::gptq_v2:
      return gptq_grid(module, scheme);
    case Format::awq_gemm:
      return awq_grid(module, scheme);
    case Format::pack_quantized:
      return pack_quantized_grid(module, scheme);
    case Format::fp8_block:
      break;
  }
  return bad_part(module, "has no integer grid");
}

std::vector<uint8_t> read_codes(const PackedModule& module, const QuantizationScheme& scheme,
                                const ImportedGrid& grid) {
  std::vector<uint8_t> codes(static_cast<size_t>(grid.rows * grid.columns));
  const int64_t width = module.codes->shape[1];
  const auto set = [&](int64_t row, int64_t column, uint32_t code) {
    codes[static_cast<size_t>(row * grid.columns + column)] = static_cast<uint8_t>(code);
  };
  if (scheme.format == Format::pack_quantized) {
    for (int64_t row = 0; row < grid.rows; ++row) {
      for (int64_t column = 0; column < grid.columns; ++column) {
        set(row, column, whole_value(*module.codes, row * width, 1, column, grid.bits));
      }
    }
    return codes;
  }
  if (scheme.format == Format::awq_gemm) {
    for (int64_t column = 0; column < grid.columns; ++column) {
      for (int64_t row = 0; row < grid.rows; ++row) {
        const uint32_t word = word_at(*module.codes, column * width + row / 8);
        set(row, column, word >> (4 * awq_nibble[static_cast<size_t>(row % 8)]) & 15);
      }
    }
    return codes;
  }
  for (int64_t column = 0; column < grid.columns; ++column) {
    for (int64_t row = 0; row < grid.rows; ++row) {
      set(row, column, stream_value(*module.codes, row, width, column, grid.bits));
    }
  }
  return codes;
}

Result<std::vector<int64_t>> check_fp8(const PackedModule& module, const QuantizationScheme& scheme) {
  const std::vector<int64_t>& shape = module.codes->shape;
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1) {
    return bad_part(module, fmt::format("tensor '{}' has shape {}, expected a matrix", module.codes->name,
                                        format_shape(shape)));
  }
  if (module.scales == nullptr) return bad_part(module, "lacks its weight_scale_inv");
  const std::array<int64_t, 2> block = fp8_block(module, scheme);
  const std::vector<int64_t> expected = {(shape[0] + block[0] - 1) / block[0],
                                         (shape[1] + block[1] - 1) / block[1]};
  const DType dtype = module.scales->dtype;
  const bool is_float = dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
  if (!is_float || (module.scales->elements() != 1 && module.scales->shape != expected)) {
    return bad_part(
        module, fmt::format("tensor '{}' is {} {}, expected F32 or BF16 {}", module.scales->name,
                            to_string(dtype), format_shape(module.scales->shape), format_shape(expected)));
  }
  return shape;
}

std::vector<float> decode_fp8(const PackedModule& module, const QuantizationScheme& scheme) {
  std::array<float, 256> values;
  for (size_t code = 0; code < values.size(); ++code)
    values[code] = e4m3_to_float(static_cast<uint8_t>(code));
  const int64_t rows = module.codes->shape[0];
  const int64_t columns = module.codes->shape[1];
  const std::array<int64_t, 2> block = fp8_block(module, scheme);
  const int64_t blocks = (columns + block[1] - 1) / block[1];
  const std::vector<float> scales = tensor_floats(*module.scales);
  std::vector<float> out(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; ++row) {
    const float* scale = scales.data() + row / block[0] * blocks;
    for (int64_t column = 0; column < columns; ++column) {
      const auto at = static_cast<size_t>(row * columns + column);
      out[at] = values[std::to_integer<uint8_t>(module.codes->bytes[at])] * scale[column / block[1]];
    }
  }
  return out;
}

}  // namespace hexlm
