#pragma once

#include <cstdint>
#include <optional>

#include "graph/shape.hpp"

namespace hexlm {

/// A number of elements or rows: `factor`, or `factor` times what the symbol is in this step.
struct Extent {
  int64_t factor = 1;
  Symbol symbol = Symbol::none;

  int64_t at(const SymbolValues& symbols) const {
    switch (symbol) {
      case Symbol::none:
        return factor;
      case Symbol::tokens:
        return factor * symbols.tokens;
      case Symbol::rows:
        return factor * symbols.rows;
      case Symbol::patches:
        return factor * symbols.patches;
    }
    return 0;
  }
};

/// The product of dimensions begin … end−1; none when it overflows or more than one is symbolic.
std::optional<Extent> extent_of(const Shape& shape, size_t begin, size_t end);
inline std::optional<Extent> extent_of(const Shape& shape) { return extent_of(shape, 0, shape.size()); }

}  // namespace hexlm
