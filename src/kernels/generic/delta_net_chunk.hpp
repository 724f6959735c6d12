#pragma once

#include <cstdint>

#include "kernels/delta_net_layout.hpp"
#include "kernels/generic/math.hpp"
#include "kernels/kernels.hpp"

/// The chunked form of the gated delta rule (spec A.4) for any vector type. Internal and static, see
/// unroll.hpp.
namespace hexlm {
namespace {

/// to = v · factor / √(Σ v² + ε)
template <class Vector>
inline void normalize_to_length(const float* v, int64_t count, double factor, float epsilon, float* to) {
  typename Vector::DoubleSum sum;
  for_vectors<Vector>(
      count, [&](int64_t i) { sum.add(Vector::load(v + i), Vector::load(v + i)); },
      [&](int64_t i, int64_t some) {
        sum.add(Vector::load_some(v + i, some), Vector::load_some(v + i, some));
      });
  const Vector scale(static_cast<float>(factor / __builtin_sqrt(sum.total() + epsilon)));
  for_vectors<Vector>(
      count, [&](int64_t i) { (Vector::load(v + i) * scale).store(to + i); },
      [&](int64_t i, int64_t some) { (Vector::load_some(v + i, some) * scale).store_some(to + i, some); });
}

/// One value head. With G_i = Σ_{j≤i} g_j in the chunk, D_ij = e^{G_i − G_j} and S the state before it:
///   (I + strict_lower(β_i k̂_i·k̂_j D_ij)) U = β (V − e^{G} K̂ S)
///   O = e^{G} Q̂ S + lower(q̂_i·k̂_j D_ij) U
///   S ← e^{G_C} S + K̂ᵀ (e^{G_C − G} U)
/// G is added up in double and kept in two floats: it reaches hundreds, where one float's rounding, once in
/// the exponent, would be a hundred times that of the products.
template <class Vector>
class ChunkedDeltaNet {
 public:
  explicit ChunkedDeltaNet(const DeltaNetArguments& arguments)
      : arguments_(arguments),
        stride_(delta_net_padded(arguments.key_dim)),
        query_(arguments.scratch),
        key_(query_ + delta_net_chunk * stride_),
        key_columns_(key_ + delta_net_chunk * stride_),
        system_(key_columns_ + delta_net_chunk * stride_),
        weights_(system_ + delta_net_chunk * delta_net_chunk),
        state_(weights_ + delta_net_chunk * delta_net_chunk),
        update_(state_ + delta_net_panel * stride_) {}

  /// Tokens first … first + count − 1, from delta_net_chunked_from to delta_net_chunk of them.
  void run(int64_t first, int64_t count) {
    first_ = first;
    count_ = count;
    load_tokens();
    transpose_keys();
    for (int64_t row = 0; row < count_; ++row) scale(key_ + row * stride_, beta_[row]);
    relate_tokens();
    decay_tokens();
    for (int64_t column = 0; column < arguments_.value_dim; column += panel) panel_of_values(column);
  }

 private:
  /// Rows and columns of a register tile.
  static constexpr int tile = Vector::tile_rows < 8 ? Vector::tile_rows : 8;
  static constexpr int64_t panel = 2 * Vector::lanes;
  static_assert(tile <= delta_net_chunked_from);
  static_assert(panel <= delta_net_panel && delta_net_chunk % panel == 0);

  using Tile = Vector[tile][2];

  static int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }

  const float* token(const float* values, int64_t row) const {
    return values + (first_ + row) * arguments_.stride;
  }

  /// Calls f with the first row of each tile. The last one lies against the end and may repeat rows: their
  /// results are the same.
  template <class Function>
  static void for_tiles(int64_t rows, Function&& f) {
    for (int64_t row = 0; row + tile < rows; row += tile) f(row);
    f(rows > tile ? rows - tile : 0);
  }

  void load_tokens() {
    const double query_scale = 1.0 / __builtin_sqrt(static_cast<double>(arguments_.key_dim));
    double sum = 0;
    for (int64_t row = 0; row < count_; ++row) {
      const int64_t gate = (first_ + row) * arguments_.gate_stride;
      normalize_to_length<Vector>(token(arguments_.query, row), arguments_.key_dim, query_scale,
                                  arguments_.epsilon, query_ + row * stride_);
      normalize_to_length<Vector>(token(arguments_.key, row), arguments_.key_dim, 1.0, arguments_.epsilon,
                                  key_ + row * stride_);
      beta_[row] = arguments_.beta[gate];
      // e^{−1000} is 0 in any case, and infinities would make NaN of differences.
      const double decay = arguments_.log_decay[gate];
      sum += decay < -1000.0 ? -1000.0 : decay;
      log_decay_[row] = static_cast<float>(sum);
      log_decay_rest_[row] = static_cast<float>(sum - log_decay_[row]);
    }
  }

  /// key_columns_[channel][row]; the last vector of rows may be partly used.
  void transpose_keys() {
    for (int64_t channel = 0; channel < arguments_.key_dim; channel += Vector::lanes) {
      const int64_t channels = smaller_of(Vector::lanes, arguments_.key_dim - channel);
      for (int64_t row = 0; row < count_; row += Vector::lanes) {
        Vector square[Vector::lanes];
        unroll<Vector::lanes>([&](auto i) __attribute__((always_inline)) {
          if (row + i < count_) square[i] = Vector::load_some(key_ + (row + i) * stride_ + channel, channels);
        });
        Vector::transpose(square);
        unroll<Vector::lanes>([&](auto i) __attribute__((always_inline)) {
          if (i < channels) square[i].store(key_columns_ + (channel + i) * delta_net_chunk + row);
        });
      }
    }
  }

  /// system_ = strict_lower(β_i k̂_i·k̂_j D_ij), weights_ = lower(q̂_i·k̂_j D_ij). Blocks that lie above the
  /// diagonal are left alone.
  void relate_tokens() {
    for_tiles(count_, [&](int64_t row) {
      float decays[tile][delta_net_chunk];
      const int64_t end = (row + tile + panel - 1) / panel * panel;
      for (int i = 0; i < tile; ++i) decays_before(row + i, end, decays[i]);
      for (int64_t other = 0; other < end; other += panel) {
        relate(key_, row, other, decays, system_);
        relate(query_, row, other, decays, weights_);
      }
    });
  }

  /// to[j] = e^{G_row − G_j} for j ≤ row, 0 for later ones before `end`.
  void decays_before(int64_t row, int64_t end, float* to) const {
    for (int64_t i = 0; i < end; i += Vector::lanes) {
      const int64_t seen = row + 1 - i;
      Vector difference = difference_of_logs(row, i);
      if (seen < Vector::lanes) difference = difference.first_or(seen > 0 ? seen : 0, -__builtin_inff());
      exponential(difference).store(to + i);
    }
  }

  /// G_row − G_other for `lanes` others. Where the first parts are close, their difference is exact.
  Vector difference_of_logs(int64_t row, int64_t other) const {
    return (Vector(log_decay_[row]) - Vector::load(log_decay_ + other)) +
           (Vector(log_decay_rest_[row]) - Vector::load(log_decay_rest_ + other));
  }

  void relate(const float* from, int64_t row, int64_t other, const float (&decays)[tile][delta_net_chunk],
              float* to) const {
    Tile products{};
    multiply<false>(from + row * stride_, stride_, key_columns_ + other, delta_net_chunk, arguments_.key_dim,
                    products);
    unroll<tile>([&](auto i) __attribute__((always_inline)) {
      float* place = to + (row + i) * delta_net_chunk + other;
      (products[i][0] * Vector::load(decays[i] + other)).store(place);
      (products[i][1] * Vector::load(decays[i] + other + Vector::lanes)).store(place + Vector::lanes);
    });
  }

  /// sums ±= a [tile, depth] · b [depth, panel], each product added with one rounding, in the order of depth.
  template <bool Subtract>
  [[gnu::always_inline]] static void multiply(const float* a, int64_t a_stride, const float* b,
                                              int64_t b_stride, int64_t depth, Tile& sums) {
    Vector held[tile][2];
    unroll<tile>([&](auto i) __attribute__((always_inline)) {
      held[i][0] = sums[i][0];
      held[i][1] = sums[i][1];
    });
    for (int64_t k = 0; k < depth; ++k) {
      const Vector left = Vector::load(b + k * b_stride);
      const Vector right = Vector::load(b + k * b_stride + Vector::lanes);
      unroll<tile>([&](auto i) __attribute__((always_inline)) {
        const Vector factor(a[i * a_stride + k]);
        held[i][0] =
            Subtract ? Vector::fnma(factor, left, held[i][0]) : Vector::fma(factor, left, held[i][0]);
        held[i][1] =
            Subtract ? Vector::fnma(factor, right, held[i][1]) : Vector::fma(factor, right, held[i][1]);
      });
    }
    unroll<tile>([&](auto i) __attribute__((always_inline)) {
      sums[i][0] = held[i][0];
      sums[i][1] = held[i][1];
    });
  }

  /// What reads the state: query_ = e^{G} q̂, key_ = β e^{G} k̂. Also what is left at the end, of the state and
  /// of each token's update.
  void decay_tokens() {
    alignas(64) float decays[delta_net_chunk] = {};
    for (int64_t row = 0; row < count_; row += Vector::lanes) {
      exponential(Vector::load(log_decay_ + row)).store(decays + row);
      exponential(difference_of_logs(count_ - 1, row)).store(left_ + row);
    }
    state_left_ = decays[count_ - 1];
    for (int64_t row = 0; row < count_; ++row) {
      scale(query_ + row * stride_, decays[row]);
      scale(key_ + row * stride_, decays[row]);
    }
  }

  void scale(float* values, float factor) const {
    for (int64_t i = 0; i < stride_; i += Vector::lanes) {
      (Vector::load(values + i) * Vector(factor)).store(values + i);
    }
  }

  /// Columns of values and of the state don't touch each other: all of a chunk's work for two vectors of
  /// them. The state's are copied together, 512 bytes apart they would share a part of the cache's sets.
  void panel_of_values(int64_t column) {
    const int64_t columns = smaller_of(panel, arguments_.value_dim - column);
    for (int64_t i = 0; i < arguments_.key_dim; ++i) {
      const float* from = arguments_.state + i * arguments_.value_dim + column;
      float* to = state_ + i * panel;
      load_part(from, columns, 0).store(to);
      load_part(from, columns, 1).store(to + Vector::lanes);
    }
    for_tiles(count_, [&](int64_t row) { solve(row, column, columns); });
    for_tiles(count_, [&](int64_t row) { read_out(row, column, columns); });
    for (int64_t row = 0; row < count_; ++row) {
      const Vector decay(left_[row]);
      for (int part = 0; part < 2; ++part) {
        float* place = update_ + row * panel + part * Vector::lanes;
        (Vector::load(place) * decay).store(place);
      }
    }
    for_tiles(arguments_.key_dim, [&](int64_t channel) { write_state(channel, column, columns); });
  }

  static Vector load_part(const float* from, int64_t columns, int part) {
    const int64_t left = columns - part * Vector::lanes;
    if (left >= Vector::lanes) return Vector::load(from + part * Vector::lanes);
    return left > 0 ? Vector::load_some(from + part * Vector::lanes, left) : Vector();
  }

  static void store_part(Vector value, float* to, int64_t columns, int part) {
    const int64_t left = columns - part * Vector::lanes;
    if (left >= Vector::lanes) {
      value.store(to + part * Vector::lanes);
    } else if (left > 0) {
      value.store_some(to + part * Vector::lanes, left);
    }
  }

  /// Forward substitution for the rows of a tile.
  [[gnu::noinline]] void solve(int64_t row, int64_t column, int64_t columns) {
    Tile sums{};
    for (int i = 0; i < tile; ++i) {
      const float* value = token(arguments_.value, row + i) + column;
      const Vector beta(beta_[row + i]);
      sums[i][0] = beta * load_part(value, columns, 0);
      sums[i][1] = beta * load_part(value, columns, 1);
    }
    multiply<true>(key_ + row * stride_, stride_, state_, panel, arguments_.key_dim, sums);
    const float* system = system_ + row * delta_net_chunk;
    multiply<true>(system, delta_net_chunk, update_, panel, row, sums);
    unroll<tile>([&](auto i) __attribute__((always_inline)) {
      unroll<i>([&](auto j) __attribute__((always_inline)) {
        const Vector factor(system[i * delta_net_chunk + row + j]);
        sums[i][0] = Vector::fnma(factor, sums[j][0], sums[i][0]);
        sums[i][1] = Vector::fnma(factor, sums[j][1], sums[i][1]);
      });
      sums[i][0].store(update_ + (row + i) * panel);
      sums[i][1].store(update_ + (row + i) * panel + Vector::lanes);
    });
  }

  [[gnu::noinline]] void read_out(int64_t row, int64_t column, int64_t columns) const {
    Tile sums{};
    multiply<false>(query_ + row * stride_, stride_, state_, panel, arguments_.key_dim, sums);
    multiply<false>(weights_ + row * delta_net_chunk, delta_net_chunk, update_, panel, row + tile, sums);
    for (int i = 0; i < tile; ++i) {
      float* to = arguments_.output + (first_ + row + i) * arguments_.output_stride + column;
      store_part(sums[i][0], to, columns, 0);
      store_part(sums[i][1], to, columns, 1);
    }
  }

  /// Rows `channel` … of the state. A tile may go beyond a small key_dim: such rows are not stored, and what
  /// they are made of lies within scratch.
  [[gnu::noinline]] void write_state(int64_t channel, int64_t column, int64_t columns) {
    const Vector decay(state_left_);
    Tile sums;
    unroll<tile>([&](auto i) __attribute__((always_inline)) {
      const float* from = state_ + (channel + i) * panel;
      sums[i][0] = decay * Vector::load(from);
      sums[i][1] = decay * Vector::load(from + Vector::lanes);
    });
    multiply<false>(key_columns_ + channel * delta_net_chunk, delta_net_chunk, update_, panel, count_, sums);
    for (int i = 0; i < tile && channel + i < arguments_.key_dim; ++i) {
      float* to = arguments_.state + (channel + i) * arguments_.value_dim + column;
      store_part(sums[i][0], to, columns, 0);
      store_part(sums[i][1], to, columns, 1);
    }
  }

  const DeltaNetArguments& arguments_;
  int64_t stride_;                              ///< between rows of queries and keys: key_dim, rounded up
  float* query_;                                ///< [chunk, stride], normalised, then decayed
  float* key_;                                  ///< [chunk, stride], normalised times beta, then decayed
  float* key_columns_;                          ///< [stride, chunk], normalised
  float* system_;                               ///< [chunk, chunk]
  float* weights_;                              ///< [chunk, chunk]
  float* state_;                                ///< [stride, panel], before the chunk
  float* update_;                               ///< U [chunk, panel]
  int64_t first_ = 0;                           ///< token of the chunk in work
  int64_t count_ = 0;                           ///< its tokens
  float log_decay_[delta_net_chunk] = {};       ///< G
  float log_decay_rest_[delta_net_chunk] = {};  ///< what its rounding left
  float left_[delta_net_chunk] = {};            ///< e^{G_C − G}
  float beta_[delta_net_chunk] = {};
  float state_left_ = 0;  ///< e^{G_C}
};

}  // namespace
}  // namespace hexlm
