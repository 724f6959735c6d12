#pragma once

#include <cmath>
#include <cstring>

#include "kernels/generic/math.hpp"
#include "kernels/kernels.hpp"

/// The recurrent kernels of gated delta-net layers for any vector type. Internal and static, see unroll.hpp.
namespace hexlm {
namespace {

/// One value head. Columns of the state don't touch each other, so a strip of them goes through all tokens
/// before the next. For several tokens the strip is copied together: 128 rows × 64 columns fit a first-level
/// cache, but where they lie, 512 bytes apart, they would share half of its sets.
template <class Vector>
class DeltaNet {
 public:
  explicit DeltaNet(const DeltaNetArguments& arguments)
      : arguments_(arguments), query_(arguments.scratch), key_(arguments.scratch + arguments.key_dim) {}

  void run() {
    constexpr int wide = 4;
    int64_t column = 0;
    for (; column + wide * Vector::lanes <= arguments_.value_dim; column += wide * Vector::lanes) {
      strip<wide>(column, Vector::lanes);
    }
    for (; column < arguments_.value_dim; column += Vector::lanes) {
      const int64_t left = arguments_.value_dim - column;
      strip<1>(column, left < Vector::lanes ? left : Vector::lanes);
    }
  }

 private:
  /// Floats of a strip's copy (32 KiB), and from how many tokens on it pays.
  static constexpr int64_t copied_rows = 128;
  static constexpr int64_t copied_from = 4;

  /// `Parts` vectors of columns, the last `columns` long.
  template <int Parts>
  void strip(int64_t column, int64_t columns) {
    float* state = arguments_.state + column;
    const int64_t width = (Parts - 1) * Vector::lanes + columns;
    if (arguments_.tokens < copied_from || arguments_.key_dim > copied_rows) {
      return steps<Parts>(column, columns, state, arguments_.value_dim);
    }
    alignas(64) float copy[copied_rows * Parts * Vector::lanes];
    for (int64_t i = 0; i < arguments_.key_dim; ++i) {
      std::memcpy(copy + i * width, state + i * arguments_.value_dim,
                  static_cast<size_t>(width) * sizeof(float));
    }
    steps<Parts>(column, columns, copy, width);
    for (int64_t i = 0; i < arguments_.key_dim; ++i) {
      std::memcpy(state + i * arguments_.value_dim, copy + i * width,
                  static_cast<size_t>(width) * sizeof(float));
    }
  }

  /// All tokens; the strip's rows lie `stride` apart.
  template <int Parts>
  void steps(int64_t column, int64_t columns, float* state, int64_t stride) {
    for (int64_t token = 0; token < arguments_.tokens; ++token) {
      normalize(arguments_.query + token * arguments_.stride, query_,
                1.0 / __builtin_sqrt(static_cast<double>(arguments_.key_dim)));
      normalize(arguments_.key + token * arguments_.stride, key_, 1.0);
      step<Parts>(token, column, columns, state, stride);
    }
  }

  /// to = v · factor / √(Σ v² + ε)
  void normalize(const float* v, float* to, double factor) {
    typename Vector::DoubleSum sum;
    for_vectors<Vector>(
        arguments_.key_dim, [&](int64_t i) { sum.add(Vector::load(v + i), Vector::load(v + i)); },
        [&](int64_t i, int64_t some) {
          sum.add(Vector::load_some(v + i, some), Vector::load_some(v + i, some));
        });
    const Vector scale(static_cast<float>(factor / __builtin_sqrt(sum.total() + arguments_.epsilon)));
    for_vectors<Vector>(
        arguments_.key_dim, [&](int64_t i) { (Vector::load(v + i) * scale).store(to + i); },
        [&](int64_t i, int64_t some) { (Vector::load_some(v + i, some) * scale).store_some(to + i, some); });
  }

  double dot_of_query_and_key() const {
    typename Vector::DoubleSum sum;
    for_vectors<Vector>(
        arguments_.key_dim, [&](int64_t i) { sum.add(Vector::load(query_ + i), Vector::load(key_ + i)); },
        [&](int64_t i, int64_t some) {
          sum.add(Vector::load_some(query_ + i, some), Vector::load_some(key_ + i, some));
        });
    return sum.total();
  }

  /// Spec A.4 step 6 in two passes over the state. The first reads with key and query at once, for
  /// S′ᵀq̂ = decay · Sᵀq̂ + (k̂·q̂) δ needs no second reading; the second decays and writes.
  template <int Parts>
  void step(int64_t token, int64_t column, int64_t columns, float* state, int64_t stride) {
    const bool whole = columns == Vector::lanes;
    const auto load = [&](const float* from, int part) __attribute__((always_inline)) {
      return whole ? Vector::load(from + part * Vector::lanes)
                   : Vector::load_some(from + part * Vector::lanes, columns);
    };
    const auto store = [&](Vector value, float* to, int part) __attribute__((always_inline)) {
      if (whole) {
        value.store(to + part * Vector::lanes);
      } else {
        value.store_some(to + part * Vector::lanes, columns);
      }
    };
    Vector read[Parts];
    Vector output[Parts];
    for (int64_t i = 0; i < arguments_.key_dim; ++i) {
      const Vector key(key_[i]);
      const Vector query(query_[i]);
      const float* row = state + i * stride;
      unroll<Parts>([&](auto part) __attribute__((always_inline)) {
        const Vector values = load(row, part);
        read[part] = Vector::fma(key, values, read[part]);
        output[part] = Vector::fma(query, values, output[part]);
      });
    }
    const Vector decay(std::exp(arguments_.log_decay[token * arguments_.gate_stride]));
    const Vector beta(arguments_.beta[token * arguments_.gate_stride]);
    const Vector dot(static_cast<float>(dot_of_query_and_key()));
    const float* value = arguments_.value + token * arguments_.stride + column;
    float* to = arguments_.output + token * arguments_.output_stride + column;
    Vector delta[Parts];
    unroll<Parts>([&](auto part) __attribute__((always_inline)) {
      delta[part] = beta * Vector::fnma(decay, read[part], load(value, part));
      store(Vector::fma(dot, delta[part], decay * output[part]), to, part);
    });
    for (int64_t i = 0; i < arguments_.key_dim; ++i) {
      const Vector key(key_[i]);
      float* row = state + i * stride;
      unroll<Parts>([&](auto part) __attribute__((always_inline)) {
        store(Vector::fma(key, delta[part], decay * load(row, part)), row, part);
      });
    }
  }

  const DeltaNetArguments& arguments_;
  float* query_;  ///< normalised, of the token in work
  float* key_;
};

/// Lanes channels of a convolution with four taps from `channel`; the window slides in registers, so y may be
/// x.
template <class Vector, bool Whole>
inline void convolve_channels(const float* x, int64_t tokens, int64_t channels, const float* weight,
                              float* history, float* y, int64_t channel, int64_t some) {
  const auto load = [&](const float* from) {
    return Whole ? Vector::load(from) : Vector::load_some(from, some);
  };
  const auto store = [&](Vector value, float* to) {
    if constexpr (Whole) {
      value.store(to);
    } else {
      value.store_some(to, some);
    }
  };
  float weights[4 * Vector::lanes] = {};
  const float* rows = weight + channel * 4;
  if constexpr (!Whole) {
    for (int64_t i = 0; i < some * 4; ++i) weights[i] = rows[i];
    rows = weights;
  }
  Vector taps[4];
  Vector::load_fours(rows, taps);
  Vector window[3];
  for (int i = 0; i < 3; ++i) window[i] = load(history + i * channels + channel);
  for (int64_t token = 0; token < tokens; ++token) {
    const Vector now = load(x + token * channels + channel);
    Vector sum = taps[0] * window[0];
    sum = Vector::fma(taps[1], window[1], sum);
    sum = Vector::fma(taps[2], window[2], sum);
    sum = Vector::fma(taps[3], now, sum);
    window[0] = window[1];
    window[1] = window[2];
    window[2] = now;
    store(silu(sum), y + token * channels + channel);
  }
  for (int i = 0; i < 3; ++i) store(window[i], history + i * channels + channel);
}

template <class Vector>
inline void convolve_four_taps(const float* x, int64_t tokens, int64_t channels, const float* weight,
                               float* history, float* y, int64_t channel_begin, int64_t channel_end) {
  for_vectors<Vector>(
      channel_end - channel_begin,
      [&](int64_t i) {
        convolve_channels<Vector, true>(x, tokens, channels, weight, history, y, channel_begin + i,
                                        Vector::lanes);
      },
      [&](int64_t i, int64_t some) {
        convolve_channels<Vector, false>(x, tokens, channels, weight, history, y, channel_begin + i, some);
      });
}

}  // namespace
}  // namespace hexlm
