#include "quantization/gguf_blocks.hpp"

#include <cstring>

#include "base/half.hpp"

namespace hexlm {
namespace {

uint8_t byte_at(const std::byte* from, int64_t index) { return std::to_integer<uint8_t>(from[index]); }

float half_at(const std::byte* from, int64_t offset) {
  uint16_t bits;
  std::memcpy(&bits, from + offset, sizeof(bits));
  return half_to_float(bits);
}

/// Where one block's values go: its codes, and the slots of its groups.
struct BlockTarget {
  uint8_t* codes;
  float* scales;
  float* offsets;
};

/// 32 values w = d · (q − 8): d, then 16 bytes whose low nibbles are the first half.
void decode_q4_0(const std::byte* block, const BlockTarget& out) {
  const float d = half_at(block, 0);
  for (int64_t i = 0; i < 16; ++i) {
    const uint8_t pair = byte_at(block, 2 + i);
    out.codes[i] = pair & 15;
    out.codes[i + 16] = pair >> 4;
  }
  out.scales[0] = d;
  out.offsets[0] = -8 * d;
}

/// 32 values w = d · q + m: d, m, nibbles as in Q4_0.
void decode_q4_1(const std::byte* block, const BlockTarget& out) {
  for (int64_t i = 0; i < 16; ++i) {
    const uint8_t pair = byte_at(block, 4 + i);
    out.codes[i] = pair & 15;
    out.codes[i + 16] = pair >> 4;
  }
  out.scales[0] = half_at(block, 0);
  out.offsets[0] = half_at(block, 2);
}

/// 32 values w = d · q, q signed.
void decode_q8_0(const std::byte* block, const BlockTarget& out) {
  const float d = half_at(block, 0);
  for (int64_t i = 0; i < 32; ++i) out.codes[i] = static_cast<uint8_t>(byte_at(block, 2 + i) ^ 128);
  out.scales[0] = d;
  out.offsets[0] = -128 * d;
}

/// The eight 6-bit scales and minimums of Q4_K and Q5_K, packed in 12 bytes: the first four of each have a
/// byte of their own, whose top two bits are those of the last four.
void decode_k_grid(const std::byte* block, const BlockTarget& out) {
  const float d = half_at(block, 0);
  const float least = half_at(block, 2);
  const std::byte* packed = block + 4;
  for (int64_t i = 0; i < 8; ++i) {
    int scale = byte_at(packed, i) & 63;
    int minimum = byte_at(packed, i + 4) & 63;
    if (i >= 4) {
      scale = (byte_at(packed, i + 4) & 15) | byte_at(packed, i - 4) >> 6 << 4;
      minimum = byte_at(packed, i + 4) >> 4 | byte_at(packed, i) >> 6 << 4;
    }
    out.scales[i] = d * static_cast<float>(scale);
    out.offsets[i] = -(least * static_cast<float>(minimum));
  }
}

/// 8 × 32 values w = d · scale · q − dmin · minimum; 32 bytes hold two sub-blocks, the first in the low
/// nibbles.
void decode_q4_k(const std::byte* block, const BlockTarget& out) {
  decode_k_grid(block, out);
  for (int64_t i = 0; i < 128; ++i) {
    const uint8_t pair = byte_at(block, 16 + i);
    const int64_t at = i / 32 * 64 + i % 32;
    out.codes[at] = pair & 15;
    out.codes[at + 32] = pair >> 4;
  }
}

/// As Q4_K, the fifth bits in 32 bytes of their own: bit s of byte i belongs to value i of sub-block s.
void decode_q5_k(const std::byte* block, const BlockTarget& out) {
  decode_k_grid(block, out);
  for (int64_t i = 0; i < 128; ++i) {
    const uint8_t pair = byte_at(block, 48 + i);
    const uint8_t high = byte_at(block, 16 + i % 32);
    const int64_t sub_block = i / 32 * 2;
    const int64_t at = sub_block * 32 + i % 32;
    out.codes[at] = static_cast<uint8_t>((pair & 15) | (high >> sub_block & 1) << 4);
    out.codes[at + 32] = static_cast<uint8_t>(pair >> 4 | (high >> (sub_block + 1) & 1) << 4);
  }
}

/// 16 × 16 values w = d · scale · (q − 32), scale signed. Of each half of 128 values, 64 bytes hold the low
/// four bits (values 0–63 in low nibbles), 32 bytes the high two (of values i, i + 32, i + 64, i + 96).
void decode_q6_k(const std::byte* block, const BlockTarget& out) {
  for (int64_t half = 0; half < 2; ++half) {
    for (int64_t i = 0; i < 128; ++i) {
      const uint8_t low = byte_at(block, half * 64 + i % 64);
      const uint8_t high = byte_at(block, 128 + half * 32 + i % 32);
      out.codes[half * 128 + i] =
          static_cast<uint8_t>((i < 64 ? low & 15 : low >> 4) | (high >> (i / 32 * 2) & 3) << 4);
    }
  }
  const float d = half_at(block, 208);
  for (int64_t i = 0; i < 16; ++i) {
    out.scales[i] = d * static_cast<float>(static_cast<int8_t>(byte_at(block, 192 + i)));
    out.offsets[i] = -32 * out.scales[i];
  }
}

using DecodeBlock = void (*)(const std::byte*, const BlockTarget&);

DecodeBlock decoder_of(GgufType type) {
  switch (type) {
    case GgufType::q4_0:
      return decode_q4_0;
    case GgufType::q4_1:
      return decode_q4_1;
    case GgufType::q8_0:
      return decode_q8_0;
    case GgufType::q4_k:
      return decode_q4_k;
    case GgufType::q5_k:
      return decode_q5_k;
    case GgufType::q6_k:
      return decode_q6_k;
    default:
      return nullptr;
  }
}

}  // namespace

std::optional<Codec> codec_of_blocks(GgufType type) {
  switch (type) {
    case GgufType::q4_0:
      return Codec{Codec::Kind::integer, 4, 32, true};
    case GgufType::q4_1:
      return Codec{Codec::Kind::integer, 4, 32, false};
    case GgufType::q8_0:
      return Codec{Codec::Kind::integer, 8, 32, true};
    case GgufType::q4_k:
      return Codec{
          .kind = Codec::Kind::integer, .bits = 4, .group = 32, .symmetric = false, .wide_scales = true};
    case GgufType::q5_k:
      return Codec{
          .kind = Codec::Kind::integer, .bits = 5, .group = 32, .symmetric = false, .wide_scales = true};
    case GgufType::q6_k:
      return Codec{
          .kind = Codec::Kind::integer, .bits = 6, .group = 16, .symmetric = true, .wide_scales = true};
    default:
      return std::nullopt;
  }
}

DecodedBlocks decode_blocks(const GgufTensor& tensor) {
  DecodedBlocks decoded;
  const Codec codec = codec_of_blocks(tensor.type).value_or(Codec{});
  const GgufBlock block = block_of(tensor.type);
  ImportedGrid& grid = decoded.grid;
  grid.bits = codec.bits;
  grid.rows = tensor.rows();
  grid.columns = tensor.columns();
  grid.group = codec.group;
  const int64_t groups_per_block = block.elements / grid.group;
  const auto slots = static_cast<size_t>(grid.rows * grid.groups());
  grid.scales.resize(slots);
  grid.offsets.resize(slots);
  decoded.codes.resize(static_cast<size_t>(grid.rows * grid.columns));
  const DecodeBlock decode = decoder_of(tensor.type);
  const int64_t blocks = static_cast<int64_t>(tensor.bytes.size()) / block.bytes;
  for (int64_t i = 0; i < blocks; ++i) {
    decode(tensor.bytes.data() + i * block.bytes,
           {decoded.codes.data() + i * block.elements, grid.scales.data() + i * groups_per_block,
            grid.offsets.data() + i * groups_per_block});
  }
  return decoded;
}

}  // namespace hexlm
