#include "quantization/random_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <span>

#include "base/half.hpp"
#include "base/hash.hpp"

namespace hexlm {
namespace {

constexpr size_t quantiles = 65536;
constexpr uint64_t numbers_per_word = 4;

/// The finaliser of SplitMix64: a bijection whose every output bit depends on every input bit.
uint64_t mix(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

/// The standard normal distribution at the middles of 65,536 equal shares of probability.
std::vector<double> normal_quantiles() {
  std::vector<double> values(quantiles);
  double x = 0;
  for (size_t i = quantiles / 2; i < quantiles; ++i) {
    const double upper = 1 - (static_cast<double>(i) + 0.5) / quantiles;
    // Newton's method from the neighbour; the tail's last steps are the longest and need six.
    for (int step = 0; step < 8; ++step) {
      const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
      x += (0.5 * std::erfc(x / std::numbers::sqrt2) - upper) / density;
    }
    values[i] = x;
    values[quantiles - 1 - i] = -x;
  }
  return values;
}

std::vector<double> quantiles_of(const Distribution& distribution) {
  std::vector<double> values;
  if (distribution.kind == Distribution::Kind::normal) {
    static const std::vector<double> standard = normal_quantiles();
    values = standard;
    for (double& value : values) value = distribution.mean + distribution.deviation * value;
    return values;
  }
  values.resize(quantiles);
  for (size_t i = 0; i < quantiles; ++i) {
    values[i] = std::log(1 + 15 * (static_cast<double>(i) + 0.5) / quantiles);
  }
  return values;
}

template <class Element>
void fill_elements(const Element* table, uint64_t key, uint64_t first, uint64_t count, std::byte* out) {
  for (uint64_t i = 0; i < count; i += numbers_per_word) {
    const uint64_t word = mix(key + (first + i) / numbers_per_word * 0x9e3779b97f4a7c15);
    Element elements[numbers_per_word];
    for (uint64_t k = 0; k < numbers_per_word; ++k) elements[k] = table[word >> (16 * k) & 0xffff];
    std::memcpy(out + i * sizeof(Element), elements, std::min(numbers_per_word, count - i) * sizeof(Element));
  }
}

}  // namespace

RandomWeights::RandomWeights(const Distribution& distribution, DType dtype)
    : width_(static_cast<size_t>(bit_width(dtype)) / 8), table_(quantiles * width_) {
  const std::vector<double> values = quantiles_of(distribution);
  for (size_t i = 0; i < quantiles; ++i) {
    const auto value = static_cast<float>(values[i]);
    const uint16_t bits = dtype == DType::bf16 ? float_to_bfloat16(value) : float_to_half(value);
    std::memcpy(table_.data() + i * width_, width_ == 4 ? static_cast<const void*>(&value) : &bits, width_);
  }
}

void RandomWeights::fill(uint64_t tensor_key, uint64_t first, uint64_t count, std::byte* out) const {
  if (width_ == sizeof(float)) {
    fill_elements(reinterpret_cast<const float*>(table_.data()), tensor_key, first, count, out);
  } else {
    fill_elements(reinterpret_cast<const uint16_t*>(table_.data()), tensor_key, first, count, out);
  }
}

uint64_t tensor_key(uint64_t seed, std::string_view name) {
  return mix(mix(seed + 0x9e3779b97f4a7c15) ^ hash64(std::as_bytes(std::span(name))));
}

}  // namespace hexlm
