// layer: tokenizer
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tokenizer/code_points.hpp"
#include "tokenizer/nfc.hpp"
#include "tokenizer/splitter.hpp"
#include "tokenizer/tokenizer.hpp"
#include "tokenizer/utf8.hpp"

namespace {

constexpr const char* pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}{1,3}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

void append_character(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

/// A token of `vocab`: printable ASCII and U+0100 to U+0143 need no escape but for two characters.
std::string quoted(const std::string& token) {
  return "\"" + std::string(token == "\"" || token == "\\" ? "\\" : "") + token + "\"";
}

/// Bytes 0 to 255 with their ids, a dozen merges, an added token of either kind, NFC.
std::string tokenizer_json() {
  std::string vocab;
  char32_t other = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    std::string token;
    append_character(prints ? static_cast<char32_t>(byte) : other++, token);
    vocab += quoted(token) + ": " + std::to_string(byte) + ", ";
  }
  return R"({"added_tokens": [{"id": 300, "content": "<|x|>", "special": true},
                              {"id": 301, "content": "<y>", "normalized": true}],
             "normalizer": {"type": "NFC"},
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
             "decoder": {"type": "ByteLevel"},
             "model": {"type": "BPE", "vocab": {)" +
         vocab +
         R"("aa": 256, "ab": 257, "aab": 258, "aaaa": 259, "Ã©": 260, "Ã©Ã©": 261, "ĠĠ": 262, "Ġa": 263},
             "merges": ["a ab", "a a", "a b", "aa aa", "Ã ©", "Ã© Ã©", "Ġ Ġ", "Ġ a"]}})";
}

/// What PCRE2 (Unicode 14) and our tables (16) may class differently is not compared.
bool known_to_pcre2(std::string_view text) {
  static const auto unassigned = hexlm::RegexSplitter::compile(R"(\p{Cn}+)");
  return unassigned->piece_end(text, 0) == text.size() &&
         unassigned->piece_end("a" + std::string(text), 0) == text.size() + 1;
}

void compare_splitters(std::string_view text) {
  static const auto words = hexlm::WordSplitter::for_pattern(pattern);
  static const auto regex = hexlm::RegexSplitter::compile(pattern);
  if (!words || !regex) std::abort();
  if (!known_to_pcre2(text)) return;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = words->piece_end(text, begin);
    if (end <= begin || end != regex->piece_end(text, begin)) std::abort();
    begin = end;
  }
}

}  // namespace

/// Text that is not UTF-8 is refused; other text comes back normalized, whole and as a stream, and is split
/// as PCRE2 splits it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizer = hexlm::Tokenizer::parse(tokenizer_json(), "embedded");
  if (!tokenizer) std::abort();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool valid = !hexlm::find_invalid_utf8(text);
  const auto ids = tokenizer->encode(text);
  if (ids.has_value() != valid) std::abort();
  if (!ids) return 0;
  std::string storage;
  // Normalization stops at an added token, so parts that would compose across one stay apart.
  const auto plain = tokenizer->encode(text, false, false);
  if (!plain || tokenizer->decode(*plain) != hexlm::compose_nfc(text, storage)) std::abort();
  hexlm::StreamDecoder stream(*tokenizer, false);
  std::string streamed;
  for (const int32_t id : *ids) streamed += stream.push(id);
  if (streamed + stream.finish() != tokenizer->decode(*ids)) std::abort();
  compare_splitters(text);
  return 0;
}
