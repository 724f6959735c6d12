// layer: formats
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "formats/package.hpp"

/// Whatever the text: the parser returns; and a manifest that it accepts is written and read back unchanged.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = hexlm::parse_manifest(text, "fuzz.json", false);
  if (!manifest) return 0;
  const std::string written = hexlm::seal_manifest(hexlm::to_json(*manifest));
  const auto again = hexlm::parse_manifest(written, "again.json", true);
  if (!again || hexlm::seal_manifest(hexlm::to_json(*again)) != written) std::abort();
  for (const hexlm::PackageTensor& tensor : manifest->tensors) {
    if (hexlm::tensor_plans(tensor).empty()) std::abort();
  }
  return 0;
}
