#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace hexlm {

/// Facts about a code point that the tokenizer asks for, as bits of one byte.
namespace code_point {
constexpr uint8_t letter = 1;       // general category L
constexpr uint8_t number = 2;       // general category N
constexpr uint8_t mark = 4;         // general category M
constexpr uint8_t white_space = 8;  // property White_Space
constexpr uint8_t newline = 16;     // "\r" or "\n"
constexpr uint8_t composes = 32;    // NFC_Quick_Check is No or Maybe
constexpr uint8_t reorders = 64;    // canonical combining class above 0
constexpr uint8_t word = 128;       // \w of UTS #18: Alphabetic, M, Nd, Pc or Join_Control
}  // namespace code_point

/// Properties of every code point: categories of Unicode 16.0, as the regular expressions of Hugging Face
/// tokenizers have them (utf8proc 2.8 gives those of 15.0, a table what came later). PCRE2 10.42 knows
/// Unicode 14.0 only, so it may split text with later characters otherwise. Facts about composition are of
/// Unicode 15.0.
class CodePointTable {
 public:
  CodePointTable();
  uint8_t operator[](char32_t c) const { return blocks_[block_of_[c >> 8]][c & 0xFF]; }

 private:
  using Block = std::array<uint8_t, 256>;
  std::array<uint16_t, 0x1100> block_of_;
  std::vector<Block> blocks_;
};

/// The one table of the process, built at the first call (about 2 ms).
const CodePointTable& code_points();

}  // namespace hexlm
