#pragma once

#include <cstring>

#include "kernels/generic/attention_tile.hpp"
#include "kernels/generic/math.hpp"

/// Attention over the cache with an online softmax, for any vector type. Internal and static, see unroll.hpp.
namespace hexlm {
namespace {

/// Reads of a cache; of an int8 cache the numbers without their scale.
template <class Vector, CacheType Type>
struct CacheReader {
  int64_t head_dim;
  const void* at(const void* cache, int64_t entry, int64_t channel) const {
    return static_cast<const char*>(cache) + (entry * head_dim + channel) * element_bytes(Type);
  }
  Vector load(const void* cache, int64_t entry, int64_t channel) const {
    if constexpr (Type == CacheType::int8) return Vector::load_int8(at(cache, entry, channel));
    if constexpr (Type == CacheType::f16) return Vector::load_half(at(cache, entry, channel));
    return Vector::load(at(cache, entry, channel));
  }
  Vector load_some(const void* cache, int64_t entry, int64_t channel, int64_t count) const {
    if constexpr (Type == CacheType::int8) return Vector::load_int8_some(at(cache, entry, channel), count);
    if constexpr (Type == CacheType::f16) return Vector::load_half_some(at(cache, entry, channel), count);
    return Vector::load_some(static_cast<const float*>(at(cache, entry, channel)), count);
  }
};

/// A tile of query rows (row = token · heads + head, counted over the call's tokens) against all entries.
template <class Vector, CacheType Type>
class AttentionTile {
 public:
  AttentionTile(const AttentionArguments& arguments, int64_t first_row, int64_t rows)
      : arguments_(arguments), reader_{arguments.head_dim}, head_dim_(arguments.head_dim), rows_(rows) {
    keys_ = arguments.scratch;
    sums_ = keys_ + head_dim_ * attention_entries;
    scores_ = sums_ + places * head_dim_;
    largest_ = scores_ + places * attention_entries;
    weights_ = largest_ + places;
    const int64_t used = rows + attention_spare_rows;
    for (int64_t i = 0; i < used; ++i) {
      const int64_t row = first_row + least(i, rows - 1);
      const int64_t token = arguments.token_begin + row / arguments.heads;
      const int64_t head = row % arguments.heads;
      queries_[i] = arguments.query + token * arguments.query_stride + head * head_dim_;
      outputs_[i] = arguments.output + token * arguments.output_stride + head * head_dim_;
      visible_[i] = arguments.entries > 0 ? arguments.entries : arguments.past + token + 1;
      largest_[i] = -__builtin_inff();
      weights_[i] = 0;
    }
    std::memset(sums_, 0, static_cast<size_t>(used * head_dim_) * sizeof(float));
  }

  void run() {
    const int64_t entries = visible_[rows_ - 1];
    for (int64_t entry = 0; entry < entries; entry += attention_entries) {
      const int64_t count = least(attention_entries, entries - entry);
      if constexpr (scaled) copy_scales(entry, count);
      transpose_keys(entry, count);
      // Rows lie in token order: the first ones may not see this block at all.
      int64_t first = 0;
      while (visible_[first] <= entry) ++first;
      for (int64_t row = first; row < rows_;) row += block_of_rows(row, entry);
    }
    for (int64_t row = 0; row < rows_; ++row) finish(row);
  }

 private:
  static constexpr int64_t places = attention_rows + attention_spare_rows;

  static constexpr bool scaled = Type == CacheType::int8;

  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

  /// Asks for the same place of the next block, in the cache's own loads: the order of reading hides the
  /// stream from the processor, and a burst of such requests would wait for each other. Beyond the end they
  /// do nothing.
  void fetch_ahead(const void* cache, int64_t entry, int64_t channel) const {
    __builtin_prefetch(reader_.at(cache, entry + attention_entries, channel), 0, 2);
  }

  /// What the block's scores and weights are multiplied with, zeros beyond `count`.
  void copy_scales(int64_t entry, int64_t count) {
    for (int64_t i = 0; i < attention_entries; ++i) {
      key_scales_[i] = i < count ? arguments_.scale * arguments_.key_scales[entry + i] : 0;
      value_scales_[i] = i < count ? arguments_.value_scales[entry + i] : 0;
    }
  }

  /// keys_[channel][entry in block]; entries beyond `count` are zero.
  void transpose_keys(int64_t entry, int64_t count) {
    for (int64_t channel = 0; channel < head_dim_; channel += Vector::lanes) {
      const int64_t channels = least(Vector::lanes, head_dim_ - channel);
      for (int64_t first = 0; first < attention_entries; first += Vector::lanes) {
        Vector square[Vector::lanes];
        unroll<Vector::lanes>([&](auto i) __attribute__((always_inline)) {
          if (first + i < count) {
            fetch_ahead(arguments_.keys, entry + first + i, channel);
            square[i] = channels == Vector::lanes
                            ? reader_.load(arguments_.keys, entry + first + i, channel)
                            : reader_.load_some(arguments_.keys, entry + first + i, channel, channels);
          }
        });
        Vector::transpose(square);
        unroll<Vector::lanes>([&](auto i) __attribute__((always_inline)) {
          if (i < channels) square[i].store(keys_ + (channel + i) * attention_entries + first);
        });
      }
    }
  }

  /// As many rows from `row` as a register tile holds, in one of a few widths; returns how many.
  int64_t block_of_rows(int64_t row, int64_t entry) {
    const int64_t rows = least(Vector::tile_rows, rows_ - row);
    if (rows <= 1) {
      rows_of<1>(row, entry);
    } else if (rows <= 2) {
      rows_of<2>(row, entry);
    } else if (rows <= 4) {
      rows_of<4>(row, entry);
    } else if (rows <= Vector::tile_rows / 2 + 2) {
      rows_of<Vector::tile_rows / 2 + 2>(row, entry);
    } else {
      rows_of<Vector::tile_rows>(row, entry);
    }
    return rows;
  }

  template <int Rows>
  void rows_of(int64_t row, int64_t entry) {
    for (int64_t first = 0; first < attention_entries; first += 2 * Vector::lanes) score<Rows>(row, first);
    float kept[Rows];
    for (int i = 0; i < Rows; ++i)
      kept[i] = soften(row + i, least(attention_entries, visible_[row + i] - entry));
    const int64_t count = least(attention_entries, visible_[row + Rows - 1] - entry);
    int64_t channel = 0;
    for (; channel + 2 * Vector::lanes <= head_dim_; channel += 2 * Vector::lanes) {
      gather<Rows, true>(row, entry, count, channel, kept);
    }
    if (channel < head_dim_) gather<Rows, false>(row, entry, count, channel, kept);
  }

  /// scores_ = scale · query · key for two vectors of entries from `first`.
  template <int Rows>
  [[gnu::noinline]] void score(int64_t row, int64_t first) {
    Vector dots[Rows][2];
    const float* queries[Rows];
    for (int i = 0; i < Rows; ++i) queries[i] = queries_[row + i];
    const float* keys = keys_ + first;
    for (int64_t channel = 0; channel < head_dim_; ++channel, keys += attention_entries) {
      const Vector left = Vector::load(keys);
      const Vector right = Vector::load(keys + Vector::lanes);
      unroll<Rows>([&](auto i) __attribute__((always_inline)) {
        const Vector query(queries[i][channel]);
        dots[i][0] = Vector::fma(query, left, dots[i][0]);
        dots[i][1] = Vector::fma(query, right, dots[i][1]);
      });
    }
    const Vector left_scale = scaled ? Vector::load(key_scales_ + first) : Vector(arguments_.scale);
    const Vector right_scale = scaled ? Vector::load(key_scales_ + first + Vector::lanes) : left_scale;
    unroll<Rows>([&](auto i) __attribute__((always_inline)) {
      float* to = scores_ + (row + i) * attention_entries + first;
      (dots[i][0] * left_scale).store(to);
      (dots[i][1] * right_scale).store(to + Vector::lanes);
    });
  }

  /// Turns the block's scores of a row into weights e^(score − greatest so far), 0 for entries from `count`
  /// on; of an int8 cache times the entry's value scale. Returns what the row's earlier sums have to be
  /// multiplied with.
  float soften(int64_t row, int64_t count) {
    float* scores = scores_ + row * attention_entries;
    constexpr int parts = attention_entries / Vector::lanes;
    Vector values[parts];
    Vector top(largest_[row]);
    unroll<parts>([&](auto i) __attribute__((always_inline)) {
      const int64_t seen = count - i * Vector::lanes;
      values[i] = Vector::load(scores + i * Vector::lanes);
      if (seen < Vector::lanes) values[i] = values[i].first_or(seen > 0 ? seen : 0, -__builtin_inff());
      top = Vector::max(top, values[i]);
    });
    const Vector largest(top.largest());
    Vector total;
    unroll<parts>([&](auto i) __attribute__((always_inline)) {
      values[i] = exponential(values[i] - largest);
      total = total + values[i];
      if constexpr (scaled) values[i] = values[i] * Vector::load(value_scales_ + i * Vector::lanes);
      values[i].store(scores + i * Vector::lanes);
    });
    float factors[Vector::lanes];
    exponential(Vector(largest_[row]) - largest).store(factors);
    largest.store_some(largest_ + row, 1);
    weights_[row] = weights_[row] * factors[0] + total.sum();
    return factors[0];
  }

  /// Two neighbouring vectors of channels, of which head_dim may have fewer when not Whole.
  template <bool Whole>
  struct ChannelPair {
    int64_t left;  ///< channels of the first vector
    int64_t right;
    Vector first(const float* from) const {
      return Whole ? Vector::load(from) : Vector::load_some(from, left);
    }
    Vector second(const float* from) const {
      return Whole ? Vector::load(from + Vector::lanes) : Vector::load_some(from + Vector::lanes, right);
    }
    void store(Vector a, Vector b, float* to) const {
      if constexpr (Whole) {
        a.store(to);
        b.store(to + Vector::lanes);
      } else {
        a.store_some(to, left);
        b.store_some(to + Vector::lanes, right);
      }
    }
  };

  /// sums = sums · kept + Σ weight · value for two vectors of channels from `channel`.
  template <int Rows, bool Whole>
  [[gnu::noinline]] void gather(int64_t row, int64_t entry, int64_t count, int64_t channel,
                                const float* kept) {
    const int64_t left = least(Vector::lanes, head_dim_ - channel);
    const ChannelPair<Whole> pair{left, least(Vector::lanes, head_dim_ - channel - left)};
    float* sums = sums_ + row * head_dim_ + channel;
    Vector first[Rows];
    Vector second[Rows];
    const float* weights = scores_ + row * attention_entries;
    for (int64_t e = 0; e < count; ++e) {
      fetch_ahead(arguments_.values, entry + e, channel);
      const Vector a = value<Whole>(entry + e, channel, pair.left);
      const Vector b = value<Whole>(entry + e, channel + Vector::lanes, pair.right);
      unroll<Rows>([&](auto i) __attribute__((always_inline)) {
        const Vector weight(weights[i * attention_entries + e]);
        first[i] = Vector::fma(weight, a, first[i]);
        second[i] = Vector::fma(weight, b, second[i]);
      });
    }
    unroll<Rows>([&](auto i) __attribute__((always_inline)) {
      float* to = sums + i * head_dim_;
      const Vector factor(kept[i]);
      pair.store(Vector::fma(factor, pair.first(to), first[i]),
                 Vector::fma(factor, pair.second(to), second[i]), to);
    });
  }

  template <bool Whole>
  Vector value(int64_t entry, int64_t channel, int64_t count) const {
    return Whole ? reader_.load(arguments_.values, entry, channel)
                 : reader_.load_some(arguments_.values, entry, channel, count);
  }

  void finish(int64_t row) {
    const Vector total(weights_[row]);
    const float* from = sums_ + row * head_dim_;
    for_vectors<Vector>(
        head_dim_, [&](int64_t i) { (Vector::load(from + i) / total).store(outputs_[row] + i); },
        [&](int64_t i, int64_t some) {
          (Vector::load_some(from + i, some) / total).store_some(outputs_[row] + i, some);
        });
  }

  const AttentionArguments& arguments_;
  CacheReader<Vector, Type> reader_;
  int64_t head_dim_;
  int64_t rows_;
  float* keys_;
  float* sums_;
  float* scores_;
  float* largest_;
  float* weights_;
  const float* queries_[places];
  float* outputs_[places];
  int64_t visible_[places];
  float key_scales_[attention_entries];
  float value_scales_[attention_entries];
};

template <class Vector, CacheType Type>
inline void attend(const AttentionArguments& arguments) {
  const int64_t rows = (arguments.token_end - arguments.token_begin) * arguments.heads;
  for (int64_t row = 0; row < rows; row += attention_rows) {
    const int64_t left = rows - row;
    AttentionTile<Vector, Type>(arguments, row, left < attention_rows ? left : attention_rows).run();
  }
}

}  // namespace
}  // namespace hexlm
