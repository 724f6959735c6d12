#pragma once

#include "kernels/kernels.hpp"

/// The scalar truth: plain loops in the order of the formulas, sums in double. Vector sets are tested against
/// these and may fall back to them for shapes that they don't cover.
namespace hexlm::reference {

void float_linear(const FloatLinearArguments& arguments);
void pack(const MatrixView& matrix, PackedMatrix& packed, int64_t tile_begin, int64_t tile_end);
void quantize_rows(const float* x, int64_t x_stride, int64_t columns, QuantizedRows& out, int64_t row_begin,
                   int64_t row_end);
void int8_linear(const Int8LinearArguments& arguments);
void dequantize_row(const MatrixView& matrix, int64_t row, float* out);

void rms_norm(const float* x, int64_t x_stride, const float* weight, float* y, int64_t y_stride, int64_t rows,
              int64_t dim, float epsilon, float weight_offset);
void gated_rms_norm(const float* x, const float* gate, const float* weight, float* y, int64_t rows,
                    int64_t dim, float epsilon);
void layer_norm(const float* x, const float* weight, const float* bias, float* y, int64_t rows, int64_t dim,
                float epsilon);
void gelu_tanh(const float* x, float* y, int64_t count);
void gelu_erf(const float* x, float* y, int64_t count);
void gelu_quick(const float* x, float* y, int64_t count);
void rope(float* x, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cosine,
          const float* sine);
void add(const float* a, const float* b, float* y, int64_t count);
void silu_multiply(const float* gate, const float* up, float* y, int64_t count);
void sigmoid_multiply(const float* x, const float* gate, float* y, int64_t count);
void store_half(const float* x, uint16_t* y, int64_t count);
void store_int8(const float* x, int8_t* y, float* scale, int64_t count);
void attention(const AttentionArguments& arguments);
void causal_convolution(const float* x, int64_t tokens, int64_t channels, const float* weight, int64_t taps,
                        float* history, float* y, int64_t channel_begin, int64_t channel_end);
void delta_net(const DeltaNetArguments& arguments);

}  // namespace hexlm::reference
