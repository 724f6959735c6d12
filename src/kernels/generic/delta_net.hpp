#pragma once

#include <cmath>

#include "kernels/generic/delta_net_chunk.hpp"
#include "kernels/generic/math.hpp"
#include "kernels/kernels.hpp"

/// The recurrent kernels of gated delta-net layers for any vector type. Internal and static, see unroll.hpp.
namespace hexlm {
namespace {

/// One value head and one token. Columns of the state don't touch each other: a strip of them at a time.
template <class Vector>
class DeltaNetStep {
 public:
  explicit DeltaNetStep(const DeltaNetArguments& arguments)
      : arguments_(arguments), query_(arguments.scratch), key_(arguments.scratch + arguments.key_dim) {}

  void run() {
    normalize_to_length<Vector>(arguments_.query, arguments_.key_dim,
                                1.0 / __builtin_sqrt(static_cast<double>(arguments_.key_dim)),
                                arguments_.epsilon, query_);
    normalize_to_length<Vector>(arguments_.key, arguments_.key_dim, 1.0, arguments_.epsilon, key_);
    dot_ = static_cast<float>(dot_of_query_and_key());
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
  /// S′ᵀq̂ = decay · Sᵀq̂ + (k̂·q̂) δ needs no second reading; the second decays and writes. `Parts` vectors of
  /// columns, the last `columns` long.
  template <int Parts>
  void strip(int64_t column, int64_t columns) {
    float* state = arguments_.state + column;
    const int64_t stride = arguments_.value_dim;
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
    const Vector decay(std::exp(*arguments_.log_decay));
    const Vector beta(*arguments_.beta);
    const Vector dot(dot_);
    const float* value = arguments_.value + column;
    float* to = arguments_.output + column;
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

  const DeltaNetArguments arguments_;
  float* query_;  ///< normalised
  float* key_;
  float dot_ = 0;  ///< of the two
};

/// The arguments of one of the tokens.
inline DeltaNetArguments one_token(const DeltaNetArguments& all, int64_t token) {
  DeltaNetArguments one = all;
  one.query += token * all.stride;
  one.key += token * all.stride;
  one.value += token * all.stride;
  one.log_decay += token * all.gate_stride;
  one.beta += token * all.gate_stride;
  one.output += token * all.output_stride;
  one.tokens = 1;
  return one;
}

template <class Vector>
inline void delta_net_head(const DeltaNetArguments& arguments) {
  int64_t token = 0;
  if (arguments.tokens >= delta_net_chunked_from) {
    ChunkedDeltaNet<Vector> chunked(arguments);
    for (int64_t left = arguments.tokens; left >= delta_net_chunked_from; left = arguments.tokens - token) {
      const int64_t count = left < delta_net_chunk ? left : delta_net_chunk;
      chunked.run(token, count);
      token += count;
    }
  }
  for (; token < arguments.tokens; ++token) DeltaNetStep<Vector>(one_token(arguments, token)).run();
}

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
