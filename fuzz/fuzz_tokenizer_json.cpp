// layer: tokenizer
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tokenizer/tokenizer.hpp"

/// Whatever the bytes: parsing returns; an error has a message of one line; what is accepted encodes text and
/// decodes it back, up to normalization and skipped white space, without touching memory that is not its own.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tokenizer = hexlm::Tokenizer::parse({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!tokenizer) {
    const std::string& message = tokenizer.error().message;
    if (message.find("fuzz.json: ") != 0 || message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  for (const std::string_view text :
       {"", "It's 12 o'clock!\n\n  <|end|> x", "\u4F60\u597D e\u0301 \U0001F600"}) {
    const auto ids = tokenizer->encode(text, true);
    if (!ids) continue;
    for (const int32_t id : *ids) {
      if (id < 0 || id >= tokenizer->size()) std::abort();
    }
    hexlm::StreamDecoder stream(*tokenizer, false);
    std::string streamed;
    for (const int32_t id : *ids) streamed += stream.push(id);
    if (streamed + stream.finish() != tokenizer->decode(*ids)) std::abort();
  }
  return 0;
}
