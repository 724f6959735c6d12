#pragma once

#include <cstdint>

namespace hexlm {

/// Tokens that the chunked delta rule takes at a time, as transformers does.
inline constexpr int64_t delta_net_chunk = 64;
/// Fewer tokens, of a call or left over from whole chunks, go step by step: the state is then read for each,
/// and they would not fill a register tile.
inline constexpr int64_t delta_net_chunked_from = 8;
/// Most columns of the state that are worked on together: two vectors of 16.
inline constexpr int64_t delta_net_panel = 32;

/// Rows of queries and keys are padded to whole vectors of any set.
constexpr int64_t delta_net_padded(int64_t key_dim) { return (key_dim + 15) / 16 * 16; }

/// Floats of a worker's scratch: queries, keys and their transpose, two matrices that relate the tokens of a
/// chunk, and a panel of columns of the state and of its update (generic/delta_net_chunk.hpp).
constexpr int64_t delta_net_floats(int64_t key_dim) {
  return 3 * delta_net_chunk * delta_net_padded(key_dim) + 2 * delta_net_chunk * delta_net_chunk +
         delta_net_panel * (delta_net_padded(key_dim) + delta_net_chunk);
}

}  // namespace hexlm
