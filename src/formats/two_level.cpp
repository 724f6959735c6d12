#include "formats/two_level.hpp"

#include <cstring>

#include "base/half.hpp"

namespace hexlm {

std::vector<uint16_t> expand_scales(const Codec& codec, int64_t rows, int64_t columns,
                                    std::span<const std::byte> group_scales,
                                    std::span<const std::byte> row_scales) {
  const int64_t groups = codec.groups(columns);
  const int64_t row_bytes = codec.scale_row_bytes(columns);
  const int zero = 1 << (codec.scale_bits - 1);
  const uint32_t mask = (1U << codec.scale_bits) - 1;
  std::vector<uint16_t> scales;
  scales.reserve(static_cast<size_t>(rows * groups));
  for (int64_t row = 0; row < rows; ++row) {
    uint16_t bits;
    std::memcpy(&bits, row_scales.data() + 2 * row, sizeof(bits));
    const float row_scale = half_to_float(bits);
    const std::byte* packed = group_scales.data() + row * row_bytes;
    uint32_t pending = 0;
    int filled = 0;
    for (int64_t group = 0; group < groups; ++group) {
      if (filled < codec.scale_bits) {
        pending |= std::to_integer<uint32_t>(*packed++) << filled;
        filled += 8;
      }
      const int scale = static_cast<int>(pending & mask) - zero;
      scales.push_back(float_to_half(row_scale * static_cast<float>(scale)));
      pending >>= codec.scale_bits;
      filled -= codec.scale_bits;
    }
  }
  return scales;
}

}  // namespace hexlm
