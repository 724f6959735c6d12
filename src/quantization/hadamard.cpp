#include "quantization/hadamard.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace hexlm {
namespace {

bool is_prime(int64_t n) {
  if (n < 2) return false;
  for (int64_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return true;
}

/// χ(a) of the field of q elements, q an odd prime: 0, 1 for squares, −1 for the rest.
std::vector<int8_t> quadratic_character(int64_t q) {
  std::vector<int8_t> character(static_cast<size_t>(q), -1);
  character[0] = 0;
  for (int64_t a = 1; a < q; ++a) character[static_cast<size_t>(a * a % q)] = 1;
  return character;
}

/// Paley I, q = 3 mod 4: order q + 1.
std::vector<int8_t> paley_first(int64_t q) {
  const std::vector<int8_t> character = quadratic_character(q);
  const int64_t n = q + 1;
  std::vector<int8_t> matrix(static_cast<size_t>(n * n), 1);
  for (int64_t i = 1; i < n; ++i) {
    matrix[static_cast<size_t>(i * n)] = -1;
    for (int64_t j = 1; j < n; ++j) {
      const int8_t value = character[static_cast<size_t>((i - j + q) % q)];
      matrix[static_cast<size_t>(i * n + j)] = i == j ? int8_t{1} : value;
    }
  }
  return matrix;
}

/// Paley II, q = 1 mod 4: order 2 (q + 1). Every element of the symmetric conference matrix becomes a block.
std::vector<int8_t> paley_second(int64_t q) {
  const std::vector<int8_t> character = quadratic_character(q);
  const int64_t n = 2 * (q + 1);
  std::vector<int8_t> matrix(static_cast<size_t>(n * n));
  for (int64_t i = 0; i <= q; ++i) {
    for (int64_t j = 0; j <= q; ++j) {
      int8_t value = 1;
      if (i == j) value = 0;
      if (i != j && i > 0 && j > 0) value = character[static_cast<size_t>((i - j + q) % q)];
      // 0 becomes (1 −1; −1 −1), ±1 becomes ±(1 1; 1 −1).
      const int8_t block[4] = {
          static_cast<int8_t>(value == 0 ? 1 : value), static_cast<int8_t>(value == 0 ? -1 : value),
          static_cast<int8_t>(value == 0 ? -1 : value), static_cast<int8_t>(value == 0 ? -1 : -value)};
      for (int64_t k = 0; k < 4; ++k) {
        matrix[static_cast<size_t>((2 * i + k / 2) * n + 2 * j + k % 2)] = block[k];
      }
    }
  }
  return matrix;
}

/// H_m without a power of two to split off; empty when there is none here.
std::vector<int8_t> base_matrix(int64_t m) {
  if (m == 1) return {1};
  if (m % 4 != 0) return {};
  if (is_prime(m - 1) && (m - 1) % 4 == 3) return paley_first(m - 1);
  const int64_t q = m / 2 - 1;
  if (is_prime(q) && q % 4 == 1) return paley_second(q);
  return {};
}

uint64_t next_bits(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

Result<HadamardRotation> HadamardRotation::create(int64_t size, uint64_t seed) {
  HadamardRotation rotation;
  // The smallest m: its dense product is the slow part.
  int64_t power = 1;
  while (size > 0 && size % (2 * power) == 0) power *= 2;
  for (; power >= 1 && rotation.matrix_.empty() && size > 0; power /= 2) {
    rotation.order_ = size / power;
    rotation.matrix_ = base_matrix(rotation.order_);
  }
  if (rotation.matrix_.empty()) {
    return fail(ErrorCode::unsupported,
                fmt::format("no Hadamard matrix of order {} is known to this version", size),
                "export without --rotate");
  }
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  rotation.signs_.reserve(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) rotation.signs_.push_back(next_bits(seed) % 2 == 0 ? scale : -scale);
  return rotation;
}

void HadamardRotation::apply(double* v) const {
  const int64_t n = size();
  for (int64_t i = 0; i < n; ++i) v[i] *= signs_[static_cast<size_t>(i)];
  // H_{2^k} over the strides that are multiples of m, then H_m within each run of m.
  for (int64_t stride = order_; stride < n; stride *= 2) {
    for (int64_t base = 0; base < n; base += 2 * stride) {
      for (int64_t i = base; i < base + stride; ++i) {
        const double a = v[i];
        const double b = v[i + stride];
        v[i] = a + b;
        v[i + stride] = a - b;
      }
    }
  }
  if (order_ == 1) return;
  std::vector<double> sums(static_cast<size_t>(order_));
  for (int64_t base = 0; base < n; base += order_) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t i = 0; i < order_; ++i) {
      const double value = v[base + i];
      const int8_t* row = matrix_.data() + i * order_;
      for (int64_t j = 0; j < order_; ++j) sums[static_cast<size_t>(j)] += value * row[j];
    }
    std::copy(sums.begin(), sums.end(), v + base);
  }
}

}  // namespace hexlm
