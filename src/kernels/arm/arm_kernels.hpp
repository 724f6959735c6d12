#pragma once

#include "kernels/kernels.hpp"

/// What every 64-bit ARM processor has.
namespace hexlm::neon {

/// The entries that work with floats; the others are null. Needs no code to be there, see float_kernels.hpp.
extern const KernelSet float_kernels;
void quantize_rows(const float* x, int64_t x_stride, int64_t columns, QuantizedRows& out, int64_t row_begin,
                   int64_t row_end);
void int8_linear(const Int8LinearArguments& arguments);

}  // namespace hexlm::neon

/// Dot products of four bytes (ARMv8.2 dotprod: Cortex-A75 and newer).
namespace hexlm::dotprod {

void int8_linear(const Int8LinearArguments& arguments);

}  // namespace hexlm::dotprod

/// Products of 2 × 8 matrices of bytes (ARMv8.6 i8mm: Cortex-X2, A710 and newer).
namespace hexlm::i8mm {

void int8_linear(const Int8LinearArguments& arguments);

}  // namespace hexlm::i8mm
