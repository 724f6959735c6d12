#include "quantization/imported_matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/half.hpp"
#include "quantization/quantizer.hpp"

namespace hexlm {
namespace {

constexpr float largest_half = 65504;

bool is_half(float value) { return half_to_float(float_to_half(value)) == value; }

void append_scales(std::vector<std::byte>& out, const std::vector<float>& values, bool wide) {
  const size_t begin = out.size();
  const size_t width = wide ? sizeof(float) : sizeof(uint16_t);
  out.resize(begin + values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = float_to_half(values[i]);
    std::memcpy(out.data() + begin + i * width, wide ? static_cast<const void*>(&values[i]) : &half, width);
  }
}

}  // namespace

void ImportedGrid::set_offsets() {
  offsets.resize(scales.size());
  for (size_t i = 0; i < scales.size(); ++i) offsets[i] = -scales[i] * static_cast<float>(zeros[i]);
}

std::optional<Codec> codec_that_fits(const ImportedGrid& grid) {
  if (!grid.column_groups.empty()) return std::nullopt;
  Codec codec{Codec::Kind::integer, grid.bits, grid.group, true};
  // What parse_codec reads back from a manifest.
  if (!parse_codec(to_string(codec))) return std::nullopt;
  const auto zero = static_cast<float>(1 << (grid.bits - 1));
  for (size_t i = 0; i < grid.scales.size(); ++i) {
    const float scale = grid.scales[i];
    const float offset = grid.offsets[i];
    if (!(std::fabs(scale) <= largest_half) || !(std::fabs(offset) <= largest_half)) return std::nullopt;
    const bool exact = grid.zeros.empty() || -static_cast<double>(scale) * grid.zeros[i] == offset;
    if (!exact) return std::nullopt;
    codec.symmetric = codec.symmetric && offset == -zero * scale;
    codec.wide_scales = codec.wide_scales || !is_half(scale);
  }
  if (!codec.symmetric) {
    codec.wide_scales = codec.wide_scales || !std::all_of(grid.offsets.begin(), grid.offsets.end(), is_half);
  }
  return codec;
}

WeightView describe_weight(const std::string& name, const Codec& codec, std::vector<int64_t> shape) {
  WeightView view;
  view.name = name;
  view.codec = codec;
  view.data = {name, codec.is_float() ? DType::f32 : DType::u8, shape, {}};
  view.shape = std::move(shape);
  return view;
}

WeightView store_codes(const std::string& name, const ImportedGrid& grid, const Codec& codec,
                       std::span<const uint8_t> codes) {
  const auto row_bytes = static_cast<size_t>(codec.row_bytes(grid.columns));
  const auto columns = static_cast<size_t>(grid.columns);
  const auto rows = static_cast<size_t>(grid.rows);
  auto bytes = std::make_shared<std::vector<std::byte>>(rows * row_bytes);
  for (size_t row = 0; row < rows; ++row) {
    pack_codes(codes.subspan(row * columns, columns), codec.bits, bytes->data() + row * row_bytes);
  }
  const size_t code_bytes = bytes->size();
  append_scales(*bytes, grid.scales, codec.wide_scales);
  const size_t scale_bytes = bytes->size() - code_bytes;
  if (!codec.symmetric) append_scales(*bytes, grid.offsets, codec.wide_scales);
  WeightView view = describe_weight(name, codec, {grid.rows, grid.columns});
  const DType type = codec.wide_scales ? DType::f32 : DType::f16;
  const std::span<const std::byte> all(*bytes);
  view.data = {name, DType::u8, {grid.rows, static_cast<int64_t>(row_bytes)}, all.first(code_bytes)};
  view.scales = {name, type, {grid.rows, grid.groups()}, all.subspan(code_bytes, scale_bytes)};
  if (!codec.symmetric) {
    view.offsets = {name, type, {grid.rows, grid.groups()}, all.subspan(code_bytes + scale_bytes)};
  }
  view.storage = std::move(bytes);
  return view;
}

WeightView store_floats(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
  auto owned = std::make_shared<std::vector<float>>(std::move(values));
  WeightView view = describe_weight(name, Codec{}, std::move(shape));
  view.data.bytes = std::as_bytes(std::span(*owned));
  view.storage = std::move(owned);
  return view;
}

WeightView store_floats(const std::string& name, const ImportedGrid& grid, std::span<const uint8_t> codes) {
  std::vector<float> values(codes.size());
  const int64_t group = grid.group == 0 ? grid.columns : grid.group;
  for (int64_t row = 0; row < grid.rows; ++row) {
    for (int64_t column = 0; column < grid.columns; ++column) {
      const int64_t index =
          grid.column_groups.empty() ? column / group : grid.column_groups[static_cast<size_t>(column)];
      const auto slot = static_cast<size_t>(row * grid.groups() + index);
      const auto at = static_cast<size_t>(row * grid.columns + column);
      const auto code = static_cast<float>(codes[at]);
      values[at] = grid.zeros.empty() ? std::fma(grid.scales[slot], code, grid.offsets[slot])
                                      : grid.scales[slot] * (code - static_cast<float>(grid.zeros[slot]));
    }
  }
  return store_floats(name, {grid.rows, grid.columns}, std::move(values));
}

}  // namespace hexlm
