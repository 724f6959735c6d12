#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/gguf.hpp"
#include "quantization/imported_matrix.hpp"

namespace hexlm {

/// The codec whose grid is the block type's, to the last bit; nothing for float types. (K-quants multiply an
/// fp16 with a 6- or 8-bit integer for each scale, which takes fp32.)
std::optional<Codec> codec_of_blocks(GgufType type);

/// Grid and codes [rows, columns] of a tensor of quantized blocks, columns being its last dimension.
struct DecodedBlocks {
  ImportedGrid grid;
  std::vector<uint8_t> codes;
};
DecodedBlocks decode_blocks(const GgufTensor& tensor);

}  // namespace hexlm
