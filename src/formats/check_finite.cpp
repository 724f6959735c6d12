#include "formats/check_finite.hpp"

#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <optional>

#include "base/half.hpp"

namespace hexlm {
namespace {

/// Elements looked at before the result is asked for: a block fits the first-level cache, and its loop has no
/// branch, so that the compiler makes it a vector loop.
constexpr size_t block_elements = 4096;

/// An IEEE number is NaN or infinite exactly when all exponent bits are set. The bytes need not be aligned.
template <class Word>
std::optional<size_t> find_full_exponent(std::span<const std::byte> bytes, Word exponent_mask) {
  const size_t count = bytes.size() / sizeof(Word);
  for (size_t begin = 0; begin < count; begin += block_elements) {
    const size_t size = std::min(block_elements, count - begin);
    const std::byte* block = bytes.data() + begin * sizeof(Word);
    Word any = 0;
    for (size_t i = 0; i < size; ++i) {
      Word word;
      std::memcpy(&word, block + i * sizeof(Word), sizeof(Word));
      any |= static_cast<Word>((word & exponent_mask) == exponent_mask);
    }
    if (any == 0) continue;
    for (size_t i = 0; i < size; ++i) {
      Word word;
      std::memcpy(&word, block + i * sizeof(Word), sizeof(Word));
      if ((word & exponent_mask) == exponent_mask) return begin + i;
    }
  }
  return std::nullopt;
}

std::optional<size_t> find_nonfinite(const TensorView& tensor) {
  switch (tensor.dtype) {
    case DType::f32:
      return find_full_exponent<uint32_t>(tensor.bytes, 0x7f800000U);
    case DType::f16:
      return find_full_exponent<uint16_t>(tensor.bytes, 0x7c00U);
    case DType::bf16:
      return find_full_exponent<uint16_t>(tensor.bytes, 0x7f80U);
    default:
      return std::nullopt;
  }
}

float element(const TensorView& tensor, size_t index) {
  if (tensor.dtype == DType::f32) {
    float value = 0;
    std::memcpy(&value, tensor.bytes.data() + index * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, tensor.bytes.data() + index * sizeof(bits), sizeof(bits));
  return tensor.dtype == DType::f16 ? half_to_float(bits) : bfloat16_to_float(bits);
}

Status check_tensor(const TensorView& tensor, const std::string& origin) {
  const std::optional<size_t> index = find_nonfinite(tensor);
  if (!index) return {};
  return fail(ErrorCode::bad_input,
              fmt::format("{}: tensor '{}': element {} is {}, expected a finite number", origin, tensor.name,
                          *index, element(tensor, *index)),
              "the file is damaged or the model was saved after its training diverged");
}

}  // namespace

Status check_finite(const WeightView& weight, const std::string& origin) {
  if (weight.codec.is_float()) return check_tensor(weight.data, origin);
  HEXLM_TRY(check_tensor(weight.scales, origin));
  return check_tensor(weight.offsets, origin);
}

}  // namespace hexlm
