#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace hexlm {

/// Facts about a code point that the tokenizer asks for, as bits of one byte.
enum CodePointProperty : uint8_t {
  kLetter = 1,      // general category L
  kNumber = 2,      // general category N
  kMark = 4,        // general category M
  kWhiteSpace = 8,  // property White_Space
  kNewline = 16,    // "\r" or "\n"
  kComposes = 32,   // NFC_Quick_Check is No or Maybe
  kReorders = 64,   // canonical combining class above 0
  kWord = 128,      // \w of UTS #18: Alphabetic, M, Nd, Pc or Join_Control
};

/// Properties of every code point: categories of Unicode 16.0, as the regular expressions of Hugging Face
/// tokenizers have them (utf8proc 2.8 gives those of 15.0, a table what came later). PCRE2 10.42 knows
/// Unicode 14.0 only, so it may split text with later characters otherwise. Facts about composition are of
/// Unicode 15.0.
class CodePointTable {
 public:
  CodePointTable();
  uint8_t operator[](char32_t code_point) const {
    return blocks_[block_of_[code_point >> 8]][code_point & 0xFF];
  }

 private:
  using Block = std::array<uint8_t, 256>;
  std::array<uint16_t, 0x1100> block_of_;
  std::vector<Block> blocks_;
};

/// The one table of the process, built at the first call (about 2 ms).
const CodePointTable& code_points();

}  // namespace hexlm
