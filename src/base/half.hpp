#pragma once

#include <bit>
#include <cstdint>

namespace hexlm {

/// IEEE binary16 to binary32, exact for every one of the 65,536 patterns (NaN payloads kept).
float half_to_float(uint16_t bits);
/// binary32 to binary16, round to nearest even, overflow to infinity, NaN stays NaN.
uint16_t float_to_half(float value);

inline float bfloat16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
/// Round to nearest even; NaN stays NaN.
uint16_t float_to_bfloat16(float value);

}  // namespace hexlm
