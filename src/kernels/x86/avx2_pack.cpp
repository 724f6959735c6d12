#include <cstring>

#include "kernels/codes.hpp"
#include "kernels/generic/unroll.hpp"
#include "kernels/x86/intrinsics.hpp"
#include "kernels/x86/x86_kernels.hpp"

namespace hexlm::avx2 {

namespace {

constexpr int lanes = 8;  // rows and 32-bit words of one transposed square

/// Eight codes a word, in column order, become four bytes that hold columns 0 … 3 low and 4 … 7 high: a
/// perfect shuffle of the nibbles, as two exchanges.
__m256i pair_nibbles(__m256i words) {
  const __m256i swap_middle_bytes = _mm256_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15, 0,
                                                     2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
  const __m256i swapped = _mm256_shuffle_epi8(words, swap_middle_bytes);
  const __m256i outer = _mm256_and_si256(swapped, _mm256_set1_epi16(static_cast<int16_t>(0xF00F)));
  const __m256i up = _mm256_and_si256(_mm256_slli_epi16(swapped, 4), _mm256_set1_epi16(0x0F00));
  const __m256i down = _mm256_and_si256(_mm256_srli_epi16(swapped, 4), _mm256_set1_epi16(0x00F0));
  return _mm256_or_si256(outer, _mm256_or_si256(up, down));
}

void transpose(__m256i (&rows)[lanes]) {
  __m256i pairs[lanes];
  unroll<4>([&](auto i) __attribute__((always_inline)) {
    pairs[i * 2] = _mm256_unpacklo_epi32(rows[i * 2], rows[i * 2 + 1]);
    pairs[i * 2 + 1] = _mm256_unpackhi_epi32(rows[i * 2], rows[i * 2 + 1]);
  });
  __m256i fours[lanes];
  unroll<2>([&](auto i) __attribute__((always_inline)) {
    fours[i * 4] = _mm256_unpacklo_epi64(pairs[i * 4], pairs[i * 4 + 2]);
    fours[i * 4 + 1] = _mm256_unpackhi_epi64(pairs[i * 4], pairs[i * 4 + 2]);
    fours[i * 4 + 2] = _mm256_unpacklo_epi64(pairs[i * 4 + 1], pairs[i * 4 + 3]);
    fours[i * 4 + 3] = _mm256_unpackhi_epi64(pairs[i * 4 + 1], pairs[i * 4 + 3]);
  });
  unroll<4>([&](auto i) __attribute__((always_inline)) {
    rows[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
  });
}

class TilePacker {
 public:
  TilePacker(const MatrixView& matrix, const PackedMatrix& packed, int64_t tile)
      : matrix_(matrix),
        packed_(packed),
        tile_(tile),
        row_bytes_(matrix.codec.row_bytes(matrix.columns)),
        square_columns_(lanes * 32 / packed.bits) {}

  void run() {
    const int64_t tile_bytes = packed_.padded_columns * packed_tile_rows * packed_.bits / 8;
    std::byte* codes = packed_.codes + tile_ * tile_bytes;
    for (int64_t column = 0; column < packed_.padded_columns; column += square_columns_) {
      square(column, 0, codes + column * packed_tile_rows * packed_.bits / 8);
      square(column, lanes, codes + column * packed_tile_rows * packed_.bits / 8 + 32);
    }
  }

 private:
  /// Eight rows of eight words from `column`; word i of all rows goes to `to` + 64 · i.
  void square(int64_t column, int64_t first_row, std::byte* to) {
    __m256i rows[lanes];
    unroll<lanes>([&](auto i) __attribute__((always_inline)) {
      rows[i] = load(tile_ * packed_tile_rows + first_row + i, column);
      if (packed_.bits == 4) rows[i] = pair_nibbles(rows[i]);
    });
    transpose(rows);
    const int64_t words = (packed_.padded_columns - column) * packed_.bits / 32;
    unroll<lanes>([&](auto i) __attribute__((always_inline)) {
      if (i < words) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * 64), rows[i]);
    });
  }

  __m256i load(int64_t row, int64_t column) const {
    const bool whole = row < matrix_.rows && column + square_columns_ <= matrix_.columns;
    if (whole && matrix_.codec.bits == packed_.bits) {
      const std::byte* from = matrix_.data + row * row_bytes_ + column * packed_.bits / 8;
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    }
    alignas(32) uint8_t codes[lanes * 8];
    std::memset(codes, packed_.zero_code, sizeof codes);
    if (row < matrix_.rows) {
      const int64_t left = matrix_.columns - column;
      unpack(matrix_.data + row * row_bytes_, column, left < square_columns_ ? left : square_columns_, codes);
    }
    if (packed_.bits == 4) {
      for (int64_t i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(codes));
  }

  /// `column` is a multiple of eight, so eight codes begin on a byte and fill `bits` bytes.
  void unpack(const std::byte* row, int64_t column, int64_t count, uint8_t* codes) const {
    const int bits = matrix_.codec.bits;
    const uint64_t mask = (uint64_t{1} << bits) - 1;
    for (int64_t i = 0; i < count; i += 8) {
      const int64_t at = (column + i) * bits / 8;
      const int64_t left = row_bytes_ - at;
      uint64_t word = 0;
      std::memcpy(&word, row + at, static_cast<size_t>(left < bits ? left : bits));
      const int64_t some = count - i < 8 ? count - i : 8;
      for (int64_t j = 0; j < some; ++j) codes[i + j] = static_cast<uint8_t>(word >> (j * bits) & mask);
    }
  }

  const MatrixView& matrix_;
  const PackedMatrix& packed_;
  int64_t tile_;
  int64_t row_bytes_;
  int64_t square_columns_;
};

void pack_scales(const std::byte* from, const Codec& codec, const PackedMatrix& packed, int64_t tile,
                 uint16_t* to) {
  to += tile * packed.groups * packed_tile_rows;
  const int64_t left = packed.rows - tile * packed_tile_rows;
  const int64_t rows = left < packed_tile_rows ? left : packed_tile_rows;
  if (rows < packed_tile_rows) {
    std::memset(to, 0, static_cast<size_t>(packed.groups * packed_tile_rows) * sizeof(uint16_t));
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = (tile * packed_tile_rows + row) * packed.groups;
    for (int64_t group = 0; group < packed.groups; ++group) {
      to[group * packed_tile_rows + row] = packed_scale(codec, from, first + group);
    }
  }
}

}  // namespace

void pack(const MatrixView& matrix, PackedMatrix& packed, int64_t tile_begin, int64_t tile_end) {
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    TilePacker(matrix, packed, tile).run();
    pack_scales(matrix.scales, matrix.codec, packed, tile, packed.scales);
    if (packed.offsets != nullptr) pack_scales(matrix.offsets, matrix.codec, packed, tile, packed.offsets);
  }
}

}  // namespace hexlm::avx2
