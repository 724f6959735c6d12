#pragma once

#include "kernels/kernels.hpp"

/// AVX2 with FMA and F16C: 256-bit vectors.
namespace hexlm::avx2 {

/// The entries that work with floats; the others are null. Needs no code to be there, see float_kernels.hpp.
extern const KernelSet float_kernels;
void pack(const MatrixView& matrix, PackedMatrix& packed, int64_t tile_begin, int64_t tile_end);
void quantize_rows(const float* x, int64_t x_stride, int64_t columns, QuantizedRows& out, int64_t row_begin,
                   int64_t row_end);
void int8_linear(const Int8LinearArguments& arguments);

}  // namespace hexlm::avx2

/// AVX-512 F, BW, DQ, VL and VNNI: 512-bit vectors.
namespace hexlm::avx512 {

/// The entries that work with floats; the others are null. Needs no code to be there, see float_kernels.hpp.
extern const KernelSet float_kernels;
void quantize_rows(const float* x, int64_t x_stride, int64_t columns, QuantizedRows& out, int64_t row_begin,
                   int64_t row_end);
void int8_linear(const Int8LinearArguments& arguments);

}  // namespace hexlm::avx512
