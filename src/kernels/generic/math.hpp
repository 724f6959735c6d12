#pragma once

#include "kernels/generic/unroll.hpp"

/// Functions of vectors. Vector is an instruction set's type (x86/avx512_vector.hpp). Internal and static,
/// see unroll.hpp.
namespace hexlm {
namespace {

/// e^x within 2 units in the last place, 0 at −∞, ∞ at ∞, NaN kept. x = n ln 2 + r with |r| ≤ ln 2 / 2, and
/// the Taylor series of e^r to r⁷, whose remainder is below 6e-9.
template <class Vector>
[[gnu::always_inline]] inline Vector exponential(Vector x) {
  // Beyond these, results round to 0 and to infinity.
  x = Vector::max(Vector(-104.0F), Vector::min(Vector(89.0F), x));
  const Vector n = Vector::round(x * Vector(1.44269504F));
  // ln 2 in two parts: n times the first, which has nine bits, is exact.
  Vector r = Vector::fnma(n, Vector(0.693359375F), x);
  r = Vector::fnma(n, Vector(-2.12194440e-4F), r);
  Vector sum = Vector(1.0F / 5040);
  sum = Vector::fma(sum, r, Vector(1.0F / 720));
  sum = Vector::fma(sum, r, Vector(1.0F / 120));
  sum = Vector::fma(sum, r, Vector(1.0F / 24));
  sum = Vector::fma(sum, r, Vector(1.0F / 6));
  sum = Vector::fma(sum, r, Vector(0.5F));
  sum = Vector::fma(sum, r, Vector(1.0F));
  sum = Vector::fma(sum, r, Vector(1.0F));
  return Vector::scale_by_power(sum, n);
}

/// x · sigmoid(x)
template <class Vector>
[[gnu::always_inline]] inline Vector silu(Vector x) {
  return x / (Vector(1.0F) + exponential(Vector() - x));
}

/// x · (1 + tanh(u)) / 2 with u = √(2/π) · (x + 0.044715 x³), as x · sigmoid(2u).
template <class Vector>
[[gnu::always_inline]] inline Vector gelu_by_tanh(Vector x) {
  const Vector cubic = Vector::fma(x * x, Vector(0.044715F * 1.595769122F), Vector(1.595769122F));
  return x / (Vector(1.0F) + exponential(Vector() - x * cubic));
}

/// x · sigmoid(1.702 x)
template <class Vector>
[[gnu::always_inline]] inline Vector quick_gelu(Vector x) {
  return x / (Vector(1.0F) + exponential(x * Vector(-1.702F)));
}

/// x · (1 + erf(x / √2)) / 2. erfc(z) for z ≥ 0 by Abramowitz and Stegun 7.1.26, off by at most 1.5e-7.
template <class Vector>
[[gnu::always_inline]] inline Vector gelu_by_erf(Vector x) {
  const Vector size = Vector::max(Vector() - x, x);
  const Vector z = size * Vector(0.707106781F);
  const Vector t = Vector(1.0F) / Vector::fma(z, Vector(0.3275911F), Vector(1.0F));
  Vector sum = Vector::fma(t, Vector(1.061405429F), Vector(-1.453152027F));
  sum = Vector::fma(sum, t, Vector(1.421413741F));
  sum = Vector::fma(sum, t, Vector(-0.284496736F));
  sum = Vector::fma(sum, t, Vector(0.254829592F));
  const Vector tail = sum * t * exponential(Vector() - z * z) * Vector(0.5F);
  // Φ(x) is 1 − tail above zero and tail below.
  return Vector::fnma(size, tail, Vector::max(Vector(), x));
}

/// Calls f(first, count) for whole vectors of [0, total), then for the rest.
template <class Vector, class Whole, class Rest>
[[gnu::always_inline]] inline void for_vectors(int64_t total, Whole&& whole, Rest&& rest) {
  int64_t i = 0;
  for (; i + Vector::lanes <= total; i += Vector::lanes) whole(i);
  if (i < total) rest(i, total - i);
}

}  // namespace
}  // namespace hexlm
