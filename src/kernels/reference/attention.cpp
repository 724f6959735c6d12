#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/half.hpp"
#include "kernels/reference/reference.hpp"

namespace hexlm::reference {

namespace {

/// Output channels summed at a time: the scores are computed again for every chunk, so that no memory is
/// needed for as many scores as there are entries.
constexpr int64_t chunk_channels = 64;

/// Number `channel` of an entry's key, or value.
double cache_value(const AttentionArguments& arguments, const void* cache, const float* scales, int64_t entry,
                   int64_t channel) {
  const int64_t index = entry * arguments.head_dim + channel;
  switch (arguments.cache) {
    case CacheType::f32:
      return static_cast<const float*>(cache)[index];
    case CacheType::f16:
      return half_to_float(static_cast<const uint16_t*>(cache)[index]);
    case CacheType::int8:
      return static_cast<double>(scales[entry]) * static_cast<const int8_t*>(cache)[index];
  }
  return 0;
}

double score(const AttentionArguments& arguments, const float* query, int64_t entry) {
  double sum = 0;
  for (int64_t i = 0; i < arguments.head_dim; ++i) {
    sum += query[i] * cache_value(arguments, arguments.keys, arguments.key_scales, entry, i);
  }
  return sum * arguments.scale;
}

void attend(const AttentionArguments& arguments, const float* query, int64_t entries, float* output) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t entry = 0; entry < entries; ++entry)
    largest = std::max(largest, score(arguments, query, entry));
  for (int64_t begin = 0; begin < arguments.head_dim; begin += chunk_channels) {
    const int64_t channels = std::min(chunk_channels, arguments.head_dim - begin);
    std::array<double, chunk_channels> sums{};
    double total = 0;
    for (int64_t entry = 0; entry < entries; ++entry) {
      const double weight = std::exp(score(arguments, query, entry) - largest);
      total += weight;
      for (int64_t i = 0; i < channels; ++i) {
        sums[i] +=
            weight * cache_value(arguments, arguments.values, arguments.value_scales, entry, begin + i);
      }
    }
    for (int64_t i = 0; i < channels; ++i) output[begin + i] = static_cast<float>(sums[i] / total);
  }
}

}  // namespace

void attention(const AttentionArguments& arguments) {
  for (int64_t token = arguments.token_begin; token < arguments.token_end; ++token) {
    for (int64_t head = 0; head < arguments.heads; ++head) {
      attend(arguments, arguments.query + token * arguments.query_stride + head * arguments.head_dim,
             arguments.entries > 0 ? arguments.entries : arguments.past + token + 1,
             arguments.output + token * arguments.output_stride + head * arguments.head_dim);
    }
  }
}

}  // namespace hexlm::reference
