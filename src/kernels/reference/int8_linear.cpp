#include <bit>
#include <cmath>

#include "base/half.hpp"
#include "kernels/activation_blocks.hpp"
#include "kernels/codes.hpp"
#include "kernels/reference/reference.hpp"

namespace hexlm::reference {

namespace {

/// Where the code of (row in tile, column) lies; at 4 bits `high` tells the nibble.
struct CodePlace {
  int64_t byte;
  bool high;
};

CodePlace place(int bits, int64_t row, int64_t column) {
  const int64_t quad = column / 4;
  const int64_t within = row * 4 + column % 4;
  if (bits == 8) return {quad * 64 + within, false};
  return {quad / 2 * 64 + within, quad % 2 != 0};
}

int packed_code(const PackedMatrix& packed, int64_t tile, int64_t row, int64_t column) {
  const std::byte* codes = packed.codes + tile * (packed.padded_columns * packed_tile_rows * packed.bits / 8);
  const CodePlace at = place(packed.bits, row, column);
  const int byte = std::to_integer<int>(codes[at.byte]);
  if (packed.bits == 8) return byte;
  return at.high ? byte >> 4 : byte & 15;
}

void pack_codes(const MatrixView& matrix, PackedMatrix& packed, int64_t tile) {
  const int64_t tile_bytes = packed.padded_columns * packed_tile_rows * packed.bits / 8;
  std::byte* codes = packed.codes + tile * tile_bytes;
  std::memset(codes, 0, static_cast<size_t>(tile_bytes));
  const int64_t row_bytes = matrix.codec.row_bytes(matrix.columns);
  for (int64_t row = 0; row < packed_tile_rows; ++row) {
    const int64_t source = tile * packed_tile_rows + row;
    for (int64_t column = 0; column < packed.padded_columns; ++column) {
      auto code = static_cast<uint32_t>(packed.zero_code);
      if (source < matrix.rows && column < matrix.columns) {
        code = code_at(matrix.data + source * row_bytes, matrix.codec.bits, column);
      }
      const CodePlace at = place(packed.bits, row, column);
      codes[at.byte] |= static_cast<std::byte>(at.high ? code << 4 : code);
    }
  }
}

void pack_scales(const std::byte* from, const MatrixView& matrix, const PackedMatrix& packed, int64_t tile,
                 uint16_t* to) {
  for (int64_t group = 0; group < packed.groups; ++group) {
    for (int64_t row = 0; row < packed_tile_rows; ++row) {
      const int64_t source = tile * packed_tile_rows + row;
      to[(tile * packed.groups + group) * packed_tile_rows + row] =
          source < matrix.rows ? packed_scale(matrix.codec, from, source * packed.groups + group)
                               : uint16_t{0};
    }
  }
}

void quantize_block(const float* x, int64_t count, int64_t block, int8_t* values, float& scale,
                    int32_t& sum) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU;
    largest = magnitude > largest ? magnitude : largest;
  }
  const ActivationScale chosen = activation_scale(std::bit_cast<float>(largest));
  scale = chosen.scale;
  sum = 0;
  for (int64_t i = 0; i < block; ++i) {
    int value = 0;
    if (i < count && chosen.inverse > 0) value = static_cast<int>(std::nearbyint(x[i] * chosen.inverse));
    values[i] = static_cast<int8_t>(value);
    sum += value;
  }
}

double block_sum(const Int8LinearArguments& arguments, int64_t tile, int64_t row, int64_t token,
                 int64_t block) {
  const PackedMatrix& weight = *arguments.weight;
  const int64_t begin = block * weight.block;
  const int8_t* x = arguments.x.values + token * arguments.x.padded_columns;
  int32_t sum = 0;
  for (int64_t column = begin; column < begin + weight.block; ++column) {
    sum += (packed_code(weight, tile, row, column) - weight.zero_code) * x[column];
  }
  const int64_t group = weight.group > 0 ? begin / weight.group : 0;
  const int64_t slot = (tile * weight.groups + group) * packed_tile_rows + row;
  const int64_t x_slot = token * (arguments.x.padded_columns / weight.block) + block;
  double value = static_cast<double>(half_to_float(weight.scales[slot])) * sum;
  if (weight.offsets != nullptr) {
    value += static_cast<double>(half_to_float(weight.offsets[slot])) * arguments.x.sums[x_slot];
  }
  return value * arguments.x.scales[x_slot];
}

}  // namespace

void pack(const MatrixView& matrix, PackedMatrix& packed, int64_t tile_begin, int64_t tile_end) {
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    pack_codes(matrix, packed, tile);
    pack_scales(matrix.scales, matrix, packed, tile, packed.scales);
    if (packed.offsets != nullptr) pack_scales(matrix.offsets, matrix, packed, tile, packed.offsets);
  }
}

void quantize_rows(const float* x, int64_t x_stride, int64_t columns, QuantizedRows& out, int64_t row_begin,
                   int64_t row_end) {
  const int64_t blocks = out.padded_columns / out.block;
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = block * out.block;
      const int64_t left = columns - begin;
      const int64_t count = left < 0 ? 0 : (left < out.block ? left : out.block);
      quantize_block(x + row * x_stride + begin, count, out.block,
                     out.values + row * out.padded_columns + begin, out.scales[row * blocks + block],
                     out.sums[row * blocks + block]);
    }
  }
}

void int8_linear(const Int8LinearArguments& arguments) {
  const PackedMatrix& weight = *arguments.weight;
  const int64_t blocks = weight.padded_columns / weight.block;
  for (int64_t tile = arguments.tile_begin; tile < arguments.tile_end; ++tile) {
    for (int64_t row = 0; row < packed_tile_rows; ++row) {
      const int64_t output = tile * packed_tile_rows + row;
      if (output >= weight.rows) break;
      for (int64_t token = 0; token < arguments.x.rows; ++token) {
        double sum = arguments.bias != nullptr ? arguments.bias[output] : 0.0;
        for (int64_t block = 0; block < blocks; ++block) sum += block_sum(arguments, tile, row, token, block);
        arguments.y[token * arguments.y_stride + output] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace hexlm::reference
