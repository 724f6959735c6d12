#include "tokenizer/byte_level.hpp"

#include <array>
#include <cstdint>

#include "tokenizer/utf8.hpp"

namespace hexlm {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr size_t alphabet_end = 0x100 + 68;

constexpr std::array<int16_t, alphabet_end> make_byte_of_character() {
  std::array<int16_t, alphabet_end> byte_of{};
  for (auto& byte : byte_of) byte = -1;
  size_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    byte_of[stands_for_itself(byte) ? static_cast<size_t>(byte) : next++] = static_cast<int16_t>(byte);
  }
  return byte_of;
}

constexpr auto byte_of_character = make_byte_of_character();

}  // namespace

bool append_byte_level(std::string_view token, std::string& out) {
  const size_t size = out.size();
  for (size_t at = 0; at < token.size();) {
    const Character character = read_character(token.data() + at);
    if (character.code_point >= alphabet_end || byte_of_character[character.code_point] < 0) {
      out.resize(size);
      return false;
    }
    out.push_back(static_cast<char>(byte_of_character[character.code_point]));
    at += character.length;
  }
  return true;
}

}  // namespace hexlm
