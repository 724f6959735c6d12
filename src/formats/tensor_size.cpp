#include "formats/tensor_size.hpp"

namespace hexlm {

std::optional<int64_t> element_count(std::span<const int64_t> shape) {
  int64_t product = 1;
  bool has_zero = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      has_zero = true;
    } else if (__builtin_mul_overflow(product, dim, &product)) {
      return std::nullopt;
    }
  }
  return has_zero ? 0 : product;
}

std::optional<int64_t> byte_count(DType dtype, int64_t elements) {
  int64_t bits = 0;
  if (__builtin_mul_overflow(elements, int64_t{bit_width(dtype)}, &bits) || bits % 8 != 0)
    return std::nullopt;
  return bits / 8;
}

}  // namespace hexlm
