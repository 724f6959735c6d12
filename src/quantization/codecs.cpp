#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.hpp"
#include "quantization/quantizer.hpp"
#include "quantization/row_kernels.hpp"

namespace hexlm {
namespace {

static_assert(std::endian::native == std::endian::little, "codes are packed with little-endian words");

uint16_t load_u16(std::span<const std::byte> bytes, int64_t index) {
  uint16_t value;
  std::memcpy(&value, bytes.data() + 2 * index, sizeof(value));
  return value;
}

/// Eight codes a step: the nibbles of eight bytes are moved together in three folds.
void pack_nibbles(std::span<const uint8_t> codes, std::byte* out) {
  size_t i = 0;
  for (; i + 8 <= codes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, codes.data() + i, sizeof(word));
    word = (word | word >> 4) & 0x00ff00ff00ff00ff;
    word = (word | word >> 8) & 0x0000ffff0000ffff;
    const auto packed = static_cast<uint32_t>(word | word >> 16);
    std::memcpy(out + i / 2, &packed, sizeof(packed));
  }
  for (; i < codes.size(); i += 2) {
    const int high = i + 1 < codes.size() ? codes[i + 1] : 0;
    out[i / 2] = static_cast<std::byte>(codes[i] | high << 4);
  }
}

void unpack_nibbles(const std::byte* packed, std::span<uint8_t> codes) {
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = std::to_integer<uint8_t>(packed[i / 2]) >> (i % 2 * 4) & 15;
  }
}

float scale_at(const Codec& codec, std::span<const std::byte> part, int64_t index) {
  if (!codec.wide_scales) return half_to_float(load_u16(part, index));
  float value;
  std::memcpy(&value, part.data() + 4 * index, sizeof(value));
  return value;
}

void decode_integer_row(const WeightView& weight, int64_t row, std::vector<uint8_t>& codes, float* out) {
  const Codec& codec = weight.codec;
  const int64_t columns = weight.columns();
  const int64_t group = codec.group > 0 ? codec.group : columns;
  const int64_t groups = codec.groups(columns);
  unpack_codes(weight.data.bytes.data() + row * codec.row_bytes(columns), codec.bits, codes);
  const int zero = codec.symmetric ? 1 << (codec.bits - 1) : 0;
  for (int64_t index = 0; index < groups; ++index) {
    const float delta = scale_at(codec, weight.scales.bytes, row * groups + index);
    const float offset = codec.symmetric ? 0.0F : scale_at(codec, weight.offsets.bytes, row * groups + index);
    // Rounds once, as every backend does. (With fp16 scales the product is exact: 11 and 8 significant bits.)
    for (int64_t i = index * group; i < std::min(columns, (index + 1) * group); ++i) {
      out[i] = std::fma(delta, static_cast<float>(codes[static_cast<size_t>(i)] - zero), offset);
    }
  }
}

}  // namespace

void pack_codes(std::span<const uint8_t> codes, int bits, std::byte* out) {
  if (bits == 8) {
    std::memcpy(out, codes.data(), codes.size());
    return;
  }
  if (bits == 4) {
    pack_nibbles(codes, out);
    return;
  }
  uint32_t pending = 0;
  int filled = 0;
  for (const uint8_t code : codes) {
    pending |= static_cast<uint32_t>(code) << filled;
    filled += bits;
    for (; filled >= 8; filled -= 8, pending >>= 8) *out++ = static_cast<std::byte>(pending & 255);
  }
  if (filled > 0) *out = static_cast<std::byte>(pending & 255);
}

void unpack_codes(const std::byte* packed, int bits, std::span<uint8_t> codes) {
  if (bits == 8) {
    std::memcpy(codes.data(), packed, codes.size());
    return;
  }
  if (bits == 4) {
    unpack_nibbles(packed, codes);
    return;
  }
  uint32_t pending = 0;
  int filled = 0;
  for (uint8_t& code : codes) {
    if (filled < bits) {
      pending |= std::to_integer<uint32_t>(*packed++) << filled;
      filled += 8;
    }
    code = static_cast<uint8_t>(pending & ((1U << bits) - 1));
    pending >>= bits;
    filled -= bits;
  }
}

std::vector<float> decode_rows(const WeightView& weight, int64_t row_begin, int64_t row_end) {
  const int64_t columns = weight.columns();
  const int64_t count = std::max<int64_t>(0, row_end - row_begin);
  std::vector<float> rows(static_cast<size_t>(count * columns));
  if (weight.codec.is_float()) {
    const int64_t row_bytes = columns * bit_width(weight.data.dtype) / 8;
    row_kernels().widen(weight.data.bytes.data() + row_begin * row_bytes, weight.data.dtype, count * columns,
                        rows.data());
    return rows;
  }
  std::vector<uint8_t> codes(static_cast<size_t>(columns));
  for (int64_t row = 0; row < count; ++row) {
    decode_integer_row(weight, row_begin + row, codes, rows.data() + row * columns);
  }
  return rows;
}

}  // namespace hexlm
