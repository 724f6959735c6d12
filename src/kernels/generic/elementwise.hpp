#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/activation_blocks.hpp"
#include "kernels/generic/math.hpp"

/// Norms, activations and rope for any vector type; KernelSet says what each computes. Internal and static,
/// see unroll.hpp.
namespace hexlm {
namespace {

/// y[i] = f(a[i], b[i]); the arrays may be the same.
template <class Vector, class Function>
[[gnu::always_inline]] inline void combine(const float* a, const float* b, float* y, int64_t count,
                                           Function&& function) {
  for_vectors<Vector>(
      count, [&](int64_t i) { function(Vector::load(a + i), Vector::load(b + i)).store(y + i); },
      [&](int64_t i, int64_t some) {
        function(Vector::load_some(a + i, some), Vector::load_some(b + i, some)).store_some(y + i, some);
      });
}

/// 1 / √(mean x² + ε). Summed in double: squares of large activations overflow a float.
template <class Vector>
inline float inverse_root_mean_square(const float* x, int64_t dim, float epsilon) {
  typename Vector::DoubleSum sum;
  for_vectors<Vector>(
      dim,
      [&](int64_t i) {
        const Vector part = Vector::load(x + i);
        sum.add(part, part);
      },
      [&](int64_t i, int64_t some) {
        const Vector part = Vector::load_some(x + i, some);
        sum.add(part, part);
      });
  return static_cast<float>(1.0 / __builtin_sqrt(sum.total() / static_cast<double>(dim) + epsilon));
}

template <class Vector>
inline void rms_norm_rows(const float* x, int64_t x_stride, const float* weight, float* y, int64_t y_stride,
                          int64_t rows, int64_t dim, float epsilon, float weight_offset) {
  const Vector offset(weight_offset);
  for (int64_t row = 0; row < rows; ++row) {
    const Vector factor(inverse_root_mean_square<Vector>(x + row * x_stride, dim, epsilon));
    combine<Vector>(x + row * x_stride, weight, y + row * y_stride, dim,
                    [&](Vector value, Vector scale) { return value * factor * (scale + offset); });
  }
}

/// y[i] = f(x[i]); the arrays may be the same.
template <class Vector, class Function>
[[gnu::always_inline]] inline void map(const float* x, float* y, int64_t count, Function&& function) {
  for_vectors<Vector>(
      count, [&](int64_t i) { function(Vector::load(x + i)).store(y + i); },
      [&](int64_t i, int64_t some) { function(Vector::load_some(x + i, some)).store_some(y + i, some); });
}

/// Calls f(vector, count) for the elements of x; the last vector may hold fewer than `lanes`, zeros after.
template <class Vector, class Function>
[[gnu::always_inline]] inline void for_each_part(const float* x, int64_t count, Function&& function) {
  for_vectors<Vector>(
      count, [&](int64_t i) { function(Vector::load(x + i), int64_t{Vector::lanes}); },
      [&](int64_t i, int64_t some) { function(Vector::load_some(x + i, some), some); });
}

/// Mean, then the mean of squares around it, in double: the one-pass formula cancels when the mean is large.
template <class Vector>
inline void layer_norm_rows(const float* x, const float* weight, const float* bias, float* y, int64_t rows,
                            int64_t dim, float epsilon) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * dim;
    float* to = y + row * dim;
    typename Vector::DoubleSum sum;
    for_each_part<Vector>(from, dim, [&](Vector part, int64_t) { sum.add(part, Vector(1.0F)); });
    const double mean = sum.total() / static_cast<double>(dim);
    const Vector centre(static_cast<float>(mean));
    typename Vector::DoubleSum squares;
    for_each_part<Vector>(from, dim, [&](Vector part, int64_t count) {
      const Vector away = (part - centre).first_or(count, 0.0F);
      squares.add(away, away);
    });
    // What rounding the centre to float moved it by.
    const double slip = mean - static_cast<double>(static_cast<float>(mean));
    const double variance = squares.total() / static_cast<double>(dim) - slip * slip;
    const Vector factor(static_cast<float>(1.0 / __builtin_sqrt(variance + epsilon)));
    const Vector rest(static_cast<float>(slip));
    for_vectors<Vector>(
        dim,
        [&](int64_t i) {
          const Vector normal = (Vector::load(from + i) - centre - rest) * factor;
          Vector::fma(normal, Vector::load(weight + i), Vector::load(bias + i)).store(to + i);
        },
        [&](int64_t i, int64_t some) {
          const Vector normal = (Vector::load_some(from + i, some) - centre - rest) * factor;
          Vector::fma(normal, Vector::load_some(weight + i, some), Vector::load_some(bias + i, some))
              .store_some(to + i, some);
        });
  }
}

template <class Vector>
inline void gated_rms_norm_rows(const float* x, const float* gate, const float* weight, float* y,
                                int64_t rows, int64_t dim, float epsilon) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * dim;
    const float* gates = gate + row * dim;
    float* to = y + row * dim;
    const Vector factor(inverse_root_mean_square<Vector>(from, dim, epsilon));
    for_vectors<Vector>(
        dim,
        [&](int64_t i) {
          const Vector normal = Vector::load(from + i) * factor * Vector::load(weight + i);
          (normal * silu(Vector::load(gates + i))).store(to + i);
        },
        [&](int64_t i, int64_t some) {
          const Vector normal =
              Vector::load_some(from + i, some) * factor * Vector::load_some(weight + i, some);
          (normal * silu(Vector::load_some(gates + i, some))).store_some(to + i, some);
        });
  }
}

template <class Vector>
inline void rope_heads(float* x, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cosine,
                       const float* sine) {
  const int64_t half = rotary_dim / 2;
  for (int64_t head = 0; head < heads; ++head) {
    float* first = x + head * head_dim;
    float* second = first + half;
    for_vectors<Vector>(
        half,
        [&](int64_t i) {
          const Vector a = Vector::load(first + i);
          const Vector b = Vector::load(second + i);
          const Vector c = Vector::load(cosine + i);
          const Vector s = Vector::load(sine + i);
          Vector::fnma(b, s, a * c).store(first + i);
          Vector::fma(a, s, b * c).store(second + i);
        },
        [&](int64_t i, int64_t some) {
          const Vector a = Vector::load_some(first + i, some);
          const Vector b = Vector::load_some(second + i, some);
          const Vector c = Vector::load_some(cosine + i, some);
          const Vector s = Vector::load_some(sine + i, some);
          Vector::fnma(b, s, a * c).store_some(first + i, some);
          Vector::fma(a, s, b * c).store_some(second + i, some);
        });
  }
}

template <class Vector>
inline void store_halves(const float* x, uint16_t* y, int64_t count) {
  for_vectors<Vector>(
      count, [&](int64_t i) { Vector::load(x + i).store_half(y + i); },
      [&](int64_t i, int64_t some) { Vector::load_some(x + i, some).store_half_some(y + i, some); });
}

template <class Vector>
inline void store_bytes(const float* x, int8_t* y, float* scale, int64_t count) {
  Vector largest;
  Vector zeros;  // 0 · x: NaN where x is not finite, which the maximum may lose
  const auto see = [&](Vector part) {
    largest = Vector::max(largest, Vector::max(part, Vector() - part));
    zeros = Vector::fma(part, Vector(), zeros);
  };
  for_vectors<Vector>(
      count, [&](int64_t i) { see(Vector::load(x + i)); },
      [&](int64_t i, int64_t some) { see(Vector::load_some(x + i, some)); });
  const ActivationScale chosen =
      activation_scale(zeros.sum() == 0.0F ? largest.largest() : __builtin_nanf(""));
  *scale = chosen.scale;
  if (!(chosen.inverse > 0)) {
    std::memset(y, 0, static_cast<size_t>(count));
    return;
  }
  const Vector inverse(chosen.inverse);
  for_vectors<Vector>(
      count, [&](int64_t i) { (Vector::load(x + i) * inverse).store_int8(y + i); },
      [&](int64_t i, int64_t some) {
        (Vector::load_some(x + i, some) * inverse).store_int8_some(y + i, some);
      });
}

}  // namespace
}  // namespace hexlm
