#include "backends/cpu/extent.hpp"

#include <algorithm>

namespace hexlm {

std::optional<Extent> extent_of(const Shape& shape, size_t begin, size_t end) {
  Extent extent;
  for (size_t i = begin; i < std::min(end, shape.size()); ++i) {
    if (shape[i].value < 0) return std::nullopt;
    if (__builtin_mul_overflow(extent.factor, shape[i].value, &extent.factor)) return std::nullopt;
    if (shape[i].symbol == Symbol::none) continue;
    if (extent.symbol != Symbol::none) return std::nullopt;
    extent.symbol = shape[i].symbol;
  }
  return extent;
}

}  // namespace hexlm
