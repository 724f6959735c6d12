#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"

namespace hexlm {

/// What the elements of a synthetic weight follow.
struct Distribution {
  enum class Kind : uint8_t {
    normal,       ///< of that mean and deviation
    log_uniform,  ///< ln(U(1, 16)): how A_log of a gated delta net starts out
  };
  Kind kind = Kind::normal;
  double mean = 0;
  double deviation = 1;
  auto operator<=>(const Distribution&) const = default;
};

/// Random elements of one distribution and dtype (f32, f16 or bf16). Element i of a tensor depends on the
/// seed, the tensor's name and i alone, so blocks can be made in any order by any thread. A 16-bit random
/// number picks one of 65,536 quantiles: normal weights reach ±4.3 deviations.
class RandomWeights {
 public:
  RandomWeights(const Distribution& distribution, DType dtype);
  /// Elements first … first + count − 1 of the tensor; `first` is a multiple of 4.
  void fill(uint64_t tensor_key, uint64_t first, uint64_t count, std::byte* out) const;

 private:
  size_t width_;
  std::vector<std::byte> table_;
};

uint64_t tensor_key(uint64_t seed, std::string_view name);

}  // namespace hexlm
