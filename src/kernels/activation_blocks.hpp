#pragma once

/// The rule by which every set quantizes activations, so that all of them make the same int8 values. Internal
/// to the kernel layer; static for the reason given in codes.hpp.
namespace hexlm {

struct ActivationScale {
  float scale;    ///< value of one step
  float inverse;  ///< what x is multiplied with before rounding to nearest even; 0 = every value is 0
};

/// Below this the block counts as zero: 127 / largest would overflow near 2⁻¹²¹, and an error of 2⁻¹⁰⁰ is
/// nothing to any model.
inline constexpr float smallest_activation = 0x1p-100F;

/// `largest` is the block's greatest magnitude, found as an integer maximum of the bits without the sign:
/// that order puts infinities and NaN on top, and the NaN scale they get here makes every output of the row
/// NaN.
[[maybe_unused]] static inline ActivationScale activation_scale(float largest) {
  if (!(largest - largest == 0.0F)) return {__builtin_nanf(""), 0.0F};
  if (largest < smallest_activation) return {0.0F, 0.0F};
  return {largest / 127.0F, 127.0F / largest};
}

}  // namespace hexlm
