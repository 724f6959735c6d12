// layer: formats
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "formats/gguf.hpp"

/// Whatever the bytes: the parser returns, and each tensor lies within them and holds the blocks of its
/// shape.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  const auto content = hexlm::parse_gguf(file, "fuzz.gguf");
  if (!content) return 0;
  for (const hexlm::GgufTensor& tensor : content->tensors) {
    const hexlm::GgufBlock block = hexlm::block_of(tensor.type);
    const int64_t blocks = tensor.columns() / block.elements * tensor.rows();
    if (static_cast<int64_t>(tensor.bytes.size()) != blocks * block.bytes) std::abort();
    if (tensor.bytes.empty()) continue;
    if (tensor.bytes.data() < file.data() || tensor.bytes.data() + tensor.bytes.size() > file.data() + size) {
      std::abort();
    }
  }
  return 0;
}
