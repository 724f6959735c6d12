#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/dtype.hpp"

namespace hexlm {

/// Number of elements of a shape. Empty when a dimension is negative or the product of the dimensions other
/// than 0 exceeds int64: then no partial product of the shape overflows either, in whatever order it is
/// taken.
std::optional<int64_t> element_count(std::span<const int64_t> shape);

/// Bytes of `elements` elements. Empty when the number overflows int64 or is no whole number of bytes.
std::optional<int64_t> byte_count(DType dtype, int64_t elements);

}  // namespace hexlm
