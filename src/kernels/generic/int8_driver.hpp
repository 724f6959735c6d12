#pragma once

#include "kernels/kernels.hpp"

/// The order in which an int8 matrix product visits tiles, columns and tokens; shared by the x86 sets.
/// Internal and static, see unroll.hpp.
namespace hexlm {

namespace {

/// What a register tile computes: for `tiles` tiles from `tile` and the kernel's number of tokens from
/// `token`, adds blocks block_begin … block_end−1 to y (which begins as the bias when block_begin is 0). The
/// sums in y grow block by block, so the result doesn't depend on how columns, tokens or tiles are split.
struct Int8Tile {
  const Int8LinearArguments* arguments;
  int64_t tile;
  int64_t token;
  int64_t block_begin;
  int64_t block_end;
};

/// Token panels: their int8 activations (384 KiB) stay in a second-level cache of 512 KiB or more while all
/// weights stream by.
constexpr int64_t panel_bytes = 384 * 1024;
/// Column chunks: the codes of the two tiles in work (16 KiB at 4 bits, 32 at 8) stay in a first-level cache
/// of 32 KiB or more while all tokens of the panel use them.
constexpr int64_t chunk_columns = 1024;

inline int64_t int8_tile_bytes(const PackedMatrix& weight, int64_t columns) {
  return columns * packed_tile_rows * weight.bits / 8;
}

/// The weight group of a block, counted up to save a division per block.
struct BlockGroup {
  BlockGroup(const PackedMatrix& weight, int64_t block)
      : blocks_per_group(weight.group > 0 ? weight.group / weight.block : INT64_MAX),
        index(block / blocks_per_group),
        left(blocks_per_group - block % blocks_per_group) {}
  void next() {
    if (--left == 0) {
      left = blocks_per_group;
      ++index;
    }
  }
  int64_t blocks_per_group;
  int64_t index;
  int64_t left;
};

/// Fetches slice `part` of `parts` of the bytes [begin, begin + bytes).
inline void prefetch_slice(const std::byte* begin, int64_t bytes, int64_t part, int64_t parts) {
  const int64_t lines = (bytes + 63) / 64;
  const int64_t last = lines * (part + 1) / parts;
  for (int64_t line = lines * part / parts; line < last; ++line) {
    __builtin_prefetch(begin + line * 64, 0, 2);
  }
}

/// One column chunk of `Tiles` tiles against the tokens token_begin … token_end−1. Meanwhile what comes next
/// in each tile's codes is fetched, a slice with every group of tokens.
template <class Kernel, int Tiles>
void int8_chunk(Int8Tile work, int64_t token_begin, int64_t token_end) {
  const PackedMatrix& weight = *work.arguments->weight;
  const int64_t tile_bytes = int8_tile_bytes(weight, weight.padded_columns);
  const int64_t end = int8_tile_bytes(weight, work.block_end * weight.block);
  const int64_t bytes = end - int8_tile_bytes(weight, work.block_begin * weight.block);
  const int64_t parts = (token_end - token_begin + Kernel::tokens - 1) / Kernel::tokens;
  for (int64_t part = 0; part < parts; ++part) {
    for (int64_t i = 0; parts > 1 && i < Tiles; ++i) {
      prefetch_slice(weight.codes + (work.tile + i) * tile_bytes + end, bytes, part, parts);
    }
    work.token = token_begin + part * Kernel::tokens;
    const int64_t left = token_end - work.token;
    Kernel::template run<Tiles>(work, left < Kernel::tokens ? static_cast<int>(left) : Kernel::tokens);
  }
}

template <class Kernel, int Tiles>
void int8_tiles(const Int8LinearArguments& arguments, int64_t tile, int64_t token_begin, int64_t token_end) {
  const PackedMatrix& weight = *arguments.weight;
  const int64_t blocks = weight.padded_columns / weight.block;
  const bool reuse = token_end - token_begin > Kernel::tokens;
  const int64_t chunk = reuse ? chunk_columns / weight.block : blocks;
  for (int64_t begin = 0; begin < blocks; begin += chunk) {
    const int64_t end = begin + chunk < blocks ? begin + chunk : blocks;
    int8_chunk<Kernel, Tiles>({&arguments, tile, 0, begin, end}, token_begin, token_end);
  }
}

/// Kernel: `tokens`, the tokens of its register tile; `pair_from`, the number of tokens from which two tiles
/// at once pay; `run<Tiles>(Int8Tile, tokens)`.
template <class Kernel>
void int8_drive(const Int8LinearArguments& arguments) {
  const PackedMatrix& weight = *arguments.weight;
  int64_t panel = panel_bytes / weight.padded_columns / Kernel::tokens * Kernel::tokens;
  if (panel < Kernel::tokens) panel = Kernel::tokens;
  for (int64_t token = 0; token < arguments.x.rows; token += panel) {
    const int64_t end = token + panel < arguments.x.rows ? token + panel : arguments.x.rows;
    int64_t tile = arguments.tile_begin;
    if (end - token >= Kernel::pair_from) {
      for (; tile + 2 <= arguments.tile_end; tile += 2) int8_tiles<Kernel, 2>(arguments, tile, token, end);
    }
    for (; tile < arguments.tile_end; ++tile) int8_tiles<Kernel, 1>(arguments, tile, token, end);
  }
}

}  // namespace

}  // namespace hexlm
