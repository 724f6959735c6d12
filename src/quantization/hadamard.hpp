#pragma once

#include <cstdint>
#include <vector>

#include "base/error.hpp"

namespace hexlm {

/// A random orthogonal n × n matrix with a fast product: D · H / √n, where D holds random signs and H is the
/// Hadamard matrix H_{2^k} ⊗ H_m (spec D.7). m is 1 or of Paley's first or second construction.
class HadamardRotation {
 public:
  /// Errors: unsupported when no such matrix of that size is known here.
  static Result<HadamardRotation> create(int64_t size, uint64_t seed);

  int64_t size() const { return static_cast<int64_t>(signs_.size()); }
  /// v ← v · R for one vector of `size` elements.
  void apply(double* v) const;

 private:
  std::vector<double> signs_;
  int64_t order_ = 1;           ///< m
  std::vector<int8_t> matrix_;  ///< H_m, row-major
};

}  // namespace hexlm
