#include "quantization/encode.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <vector>

#include "base/half.hpp"
#include "base/text.hpp"
#include "quantization/grid_search.hpp"
#include "quantization/row_kernels.hpp"

namespace hexlm {
namespace {

DType stored_dtype(const Codec& codec) {
  switch (codec.kind) {
    case Codec::Kind::f16:
      return DType::f16;
    case Codec::Kind::bf16:
      return DType::bf16;
    default:
      return DType::f32;
  }
}

uint64_t element_bytes(DType dtype) { return static_cast<uint64_t>(bit_width(dtype)) / 8; }

/// Rounds one row of floats to 16 bits; the column of the first that leaves the type's range, or −1.
template <class Round, class Restore>
int64_t narrow_row(const float* row, int64_t columns, std::byte* out, EncodedRows& encoded, Round round,
                   Restore restore) {
  for (int64_t i = 0; i < columns; ++i) {
    const uint16_t bits = round(row[i]);
    const float back = restore(bits);
    if (!std::isfinite(back)) return i;
    const double difference = static_cast<double>(row[i]) - back;
    encoded.squared_error += difference * difference;
    encoded.squared_norm += static_cast<double>(row[i]) * row[i];
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
  return -1;
}

int64_t store_float_row(const float* row, int64_t columns, const Codec& codec, std::byte* out,
                        EncodedRows& encoded) {
  if (codec.kind == Codec::Kind::f16) {
    return narrow_row(row, columns, out, encoded, float_to_half, half_to_float);
  }
  if (codec.kind == Codec::Kind::bf16) {
    return narrow_row(row, columns, out, encoded, float_to_bfloat16, bfloat16_to_float);
  }
  for (int64_t i = 0; i < columns; ++i) encoded.squared_norm += static_cast<double>(row[i]) * row[i];
  std::memcpy(out, row, static_cast<size_t>(columns) * sizeof(float));
  return -1;
}

std::optional<EncodeFault> encode_float_rows(const std::byte* source, DType dtype, int64_t rows,
                                             int64_t columns, const Codec& codec, EncodedRows& encoded,
                                             const RowKernels& kernels) {
  const auto source_row = static_cast<size_t>(columns) * element_bytes(dtype);
  const auto stored_row = static_cast<size_t>(codec.row_bytes(columns));
  const bool copy = dtype == stored_dtype(codec);
  std::vector<float> row(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* from = source + static_cast<size_t>(r) * source_row;
    std::byte* to = encoded.data.data() + static_cast<size_t>(r) * stored_row;
    kernels.widen(from, dtype, columns, row.data());
    const int64_t bad = kernels.find_not_finite(row.data(), columns);
    if (bad >= 0) return EncodeFault{EncodeFault::Kind::not_finite, r, bad, row[static_cast<size_t>(bad)]};
    if (copy) {
      std::memcpy(to, from, source_row);
      continue;
    }
    const int64_t beyond = store_float_row(row.data(), columns, codec, to, encoded);
    if (beyond >= 0) {
      return EncodeFault{EncodeFault::Kind::value_overflow, r, beyond, row[static_cast<size_t>(beyond)]};
    }
  }
  return std::nullopt;
}

/// The element of greatest magnitude in a group, for the message about its scale.
EncodeFault scale_fault(const std::vector<float>& row, int64_t r, int64_t group_index, const Codec& codec) {
  const auto columns = static_cast<int64_t>(row.size());
  const int64_t group = codec.group > 0 ? codec.group : columns;
  EncodeFault fault{EncodeFault::Kind::scale_overflow, r, group_index * group, 0};
  for (int64_t i = group_index * group; i < std::min(columns, (group_index + 1) * group); ++i) {
    const float value = row[static_cast<size_t>(i)];
    if (std::fabs(value) > std::fabs(fault.value)) fault.column = i, fault.value = value;
  }
  return fault;
}

Grid choose_grid(Method method, const float* values, const float* importance, int64_t count,
                 const Codec& codec) {
  if (method == Method::rtn) return widest_grid(values, count, codec);
  if (method == Method::hqq) return split_grid(values, count, codec);
  return search_grid(values, importance, count, codec);
}

/// The first group whose range fp16 scales can't hold, or −1.
int64_t find_overflow(const std::vector<float>& row, const Codec& codec) {
  const auto columns = static_cast<int64_t>(row.size());
  const int64_t group = codec.group > 0 ? codec.group : columns;
  for (int64_t begin = 0, index = 0; begin < columns; begin += group, ++index) {
    const Grid grid = widest_grid(row.data() + begin, std::min(group, columns - begin), codec);
    if (!std::isfinite(grid.delta) || !std::isfinite(grid.offset)) return index;
  }
  return -1;
}

std::optional<EncodeFault> encode_searched_rows(const std::byte* source, DType dtype, int64_t rows,
                                                int64_t columns, const Codec& codec, Method method,
                                                EncodedRows& encoded) {
  const RowKernels& kernels = row_kernels();
  const int64_t group = codec.group > 0 ? codec.group : columns;
  std::vector<float> row(static_cast<size_t>(columns));
  const std::vector<float> importance(static_cast<size_t>(columns), 1.0F);
  std::vector<uint8_t> codes(static_cast<size_t>(columns));
  RowGrids grids;
  prepare_rows(rows, columns, codec, encoded);
  for (int64_t r = 0; r < rows; ++r) {
    kernels.widen(source + static_cast<size_t>(r * columns) * element_bytes(dtype), dtype, columns,
                  row.data());
    const int64_t bad = kernels.find_not_finite(row.data(), columns);
    if (bad >= 0) return EncodeFault{EncodeFault::Kind::not_finite, r, bad, row[static_cast<size_t>(bad)]};
    const int64_t beyond = find_overflow(row, codec);
    if (beyond >= 0) return scale_fault(row, r, beyond, codec);
    choose_row_grids(row.data(), importance.data(), columns, codec, grids,
                     [&](const float* values, const float* weights, int64_t count) {
                       return choose_grid(method, values, weights, count, codec);
                     });
    for (int64_t i = 0; i < columns; ++i) {
      codes[static_cast<size_t>(i)] =
          code_of(row[static_cast<size_t>(i)], grids.groups[static_cast<size_t>(i / group)]);
    }
    store_row(row.data(), codes, codec, grids, r, encoded);
  }
  return std::nullopt;
}

}  // namespace

Error describe(const EncodeFault& fault, const Codec& codec, const std::string& origin,
               std::span<const int64_t> position) {
  const std::string element =
      fmt::format("{}: element {} is {}", origin, format_shape(position), fault.value);
  switch (fault.kind) {
    case EncodeFault::Kind::not_finite:
      return {ErrorCode::bad_input, element + ", expected a finite value", "the checkpoint is damaged"};
    case EncodeFault::Kind::scale_overflow:
      return {ErrorCode::bad_input,
              fmt::format("{}, beyond what {} can hold: scales and offsets are fp16, at most 65504", element,
                          to_string(codec)),
              "store this weight as bf16 or f32"};
    case EncodeFault::Kind::value_overflow:
      break;
  }
  const std::string_view largest = codec.kind == Codec::Kind::f16 ? "65504" : "3.3895e+38";
  return {ErrorCode::bad_input,
          fmt::format("{}, beyond {}'s largest value {}", element, to_string(codec), largest),
          codec.kind == Codec::Kind::f16 ? "use bf16 or f32" : "use f32"};
}

std::optional<EncodeFault> encode_rows(const std::byte* source, DType dtype, int64_t rows, int64_t columns,
                                       const Codec& codec, Method method, EncodedRows& encoded,
                                       const RowKernels& kernels) {
  if (!codec.is_float() && (method != Method::rtn || codec.is_two_level())) {
    return encode_searched_rows(source, dtype, rows, columns, codec, method, encoded);
  }
  encoded.squared_error = 0;
  encoded.squared_norm = 0;
  encoded.group_scales.clear();
  encoded.data.resize(static_cast<size_t>(rows * codec.row_bytes(columns)));
  const auto groups = codec.is_float() ? 0 : codec.groups(columns);
  encoded.scales.resize(static_cast<size_t>(rows * groups));
  encoded.offsets.resize(codec.symmetric ? 0 : static_cast<size_t>(rows * groups));
  if (codec.is_float()) return encode_float_rows(source, dtype, rows, columns, codec, encoded, kernels);

  std::vector<float> row(static_cast<size_t>(columns));
  std::vector<uint8_t> codes(static_cast<size_t>(columns));
  RowTarget target;
  target.codes = codes.data();
  for (int64_t r = 0; r < rows; ++r) {
    kernels.widen(source + static_cast<size_t>(r * columns) * element_bytes(dtype), dtype, columns,
                  row.data());
    target.scales = encoded.scales.data() + r * groups;
    target.offsets = codec.symmetric ? nullptr : encoded.offsets.data() + r * groups;
    const RowFault fault = kernels.encode_row(row.data(), columns, codec, target);
    if (fault.kind == RowFault::Kind::scale_overflow) return scale_fault(row, r, fault.index, codec);
    if (fault.kind == RowFault::Kind::not_finite) {
      return EncodeFault{EncodeFault::Kind::not_finite, r, fault.index,
                         row[static_cast<size_t>(fault.index)]};
    }
    pack_codes(codes, codec.bits, encoded.data.data() + r * codec.row_bytes(columns));
  }
  encoded.squared_error = target.squared_error;
  encoded.squared_norm = target.squared_norm;
  return std::nullopt;
}

}  // namespace hexlm
