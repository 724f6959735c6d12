#include "backends/cpu/step.hpp"

namespace hexlm {

void quantize(const RunContext& context, const float* x, int64_t rows, const PreparedMatrix& matrix,
              QuantizedRows& out) {
  out.rows = rows;
  out.padded_columns = matrix.packed.padded_columns;
  const int64_t grain = grain_of(context.pool, rows, matrix.columns * 4);
  context.pool.run(rows, grain, [&](int64_t begin, int64_t end, int) {
    context.kernels.quantize_rows(x, matrix.columns, matrix.columns, out, begin, end);
  });
}

void multiply(const KernelSet& kernels, const PreparedMatrix& matrix, const LinearInput& input,
              const float* bias, float* y, int64_t y_stride, int64_t tile_begin, int64_t tile_end,
              float* scratch) {
  if (matrix.is_packed) {
    const int64_t blocks = matrix.packed.padded_columns / matrix.packed.block;
    Int8LinearArguments arguments;
    arguments.weight = &matrix.packed;
    arguments.x = *input.quantized;
    arguments.x.rows = input.rows;
    arguments.x.values += input.first_quantized * matrix.packed.padded_columns;
    arguments.x.scales += input.first_quantized * blocks;
    arguments.x.sums += input.first_quantized * blocks;
    arguments.bias = bias;
    arguments.y = y;
    arguments.y_stride = y_stride;
    arguments.tile_begin = tile_begin;
    arguments.tile_end = tile_end;
    kernels.int8_linear(arguments);
    return;
  }
  FloatLinearArguments arguments;
  arguments.x = input.x;
  arguments.x_stride = matrix.columns;
  arguments.tokens = input.rows;
  arguments.weight = matrix.stored;
  arguments.bias = bias;
  arguments.y = y;
  arguments.y_stride = y_stride;
  arguments.row_begin = tile_begin * packed_tile_rows;
  arguments.row_end = std::min(tile_end * packed_tile_rows, matrix.rows);
  arguments.scratch = scratch;
  kernels.float_linear(arguments);
}

}  // namespace hexlm
