#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"

namespace hexlm {

/// A checked view of one stored tensor: `bytes.size()` equals the product of `shape` times the element width.
/// The bytes belong to the file it came from and need not be aligned to the element.
struct TensorView {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;

  int64_t elements() const {
    int64_t product = 1;
    for (int64_t dim : shape) product *= dim;
    return product;
  }
};

}  // namespace hexlm
