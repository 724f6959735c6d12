// layer: formats
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "formats/safetensors_header.hpp"

/// Whatever the bytes: the parser returns, and each view it hands out lies within them and has the size its
/// dtype and shape say.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  const auto content = hexlm::parse_safetensors(file, "fuzz.safetensors");
  if (!content) return 0;
  size_t total = 0;
  for (const hexlm::TensorView& tensor : content->tensors) {
    const auto bits =
        static_cast<uint64_t>(tensor.elements()) * static_cast<uint64_t>(hexlm::bit_width(tensor.dtype));
    if (tensor.bytes.size() * 8 != bits) std::abort();
    if (tensor.bytes.data() < file.data() || tensor.bytes.data() + tensor.bytes.size() > file.data() + size) {
      std::abort();
    }
    total += tensor.bytes.size();
  }
  if (total > size) std::abort();
  return 0;
}
