#include "kernels/delta_net_layout.hpp"
#include "kernels/generic/attention_tile.hpp"
#include "kernels/kernels.hpp"

namespace hexlm {

namespace {

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

int64_t tiles(const PackedMatrix& packed) {
  return round_up(packed.rows, packed_tile_rows) / packed_tile_rows;
}

}  // namespace

MatrixView matrix_view(const WeightView& weight) {
  return {.codec = weight.codec,
          .rows = weight.rows(),
          .columns = weight.columns(),
          .data = weight.data.bytes.data(),
          .scales = weight.scales.bytes.data(),
          .offsets = weight.offsets.bytes.data()};
}

bool describe_packed(const MatrixView& matrix, PackedMatrix& packed) {
  const Codec& codec = matrix.codec;
  if (codec.is_float() || codec.group % 32 != 0) return false;
  packed = {};
  packed.bits = codec.bits <= 4 ? 4 : 8;
  packed.zero_code = codec.symmetric ? 1 << (codec.bits - 1) : 0;
  packed.rows = matrix.rows;
  packed.columns = matrix.columns;
  packed.block = codec.group % 64 == 0 ? 64 : 32;
  packed.padded_columns = round_up(matrix.columns, packed.block);
  packed.group = codec.group;
  packed.groups = codec.groups(matrix.columns);
  return true;
}

size_t packed_code_bytes(const PackedMatrix& packed) {
  return static_cast<size_t>(tiles(packed) * packed_tile_rows * packed.padded_columns * packed.bits / 8);
}

size_t packed_scale_bytes(const PackedMatrix& packed) {
  return static_cast<size_t>(tiles(packed) * packed_tile_rows * packed.groups) * sizeof(uint16_t);
}

int64_t float_linear_scratch(int64_t columns) {
  // A row for the reference; a panel of rows, once as rows and once as columns, for the vector sets
  // (generic/float_linear.hpp).
  constexpr int64_t panel = int64_t{2} * 32 * 1024;
  return columns > panel ? round_up(columns, 16) : panel;
}

int64_t attention_scratch(int64_t head_dim) { return attention_tile_floats(head_dim); }

int64_t delta_net_scratch(int64_t key_dim) { return delta_net_floats(key_dim); }

}  // namespace hexlm
