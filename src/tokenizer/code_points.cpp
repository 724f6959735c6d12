#include "tokenizer/code_points.hpp"

#include <algorithm>
#include <map>
#include <utf8proc.h>

namespace hexlm {
namespace {

// Planes 4 to 13 are unassigned, 15 and 16 private use: none of our properties holds there.
constexpr char32_t planes_end = 0x40000;
constexpr char32_t tags_begin = 0xE0000;
constexpr char32_t tags_end = 0xE1000;

struct Range {
  char32_t first, last;
  uint8_t bits;
};

/// Letters, numbers and marks that Unicode 15.1 and 16.0 added after utf8proc 2.8. The regular expressions of
/// today's Hugging Face tokenizers know them.
constexpr std::array added_after_15 = {
    Range{0x897, 0x897, code_point::mark},       Range{0x1C89, 0x1C8A, code_point::letter},
    Range{0xA7CB, 0xA7CD, code_point::letter},   Range{0xA7DA, 0xA7DC, code_point::letter},
    Range{0x105C0, 0x105F3, code_point::letter}, Range{0x10D40, 0x10D49, code_point::number},
    Range{0x10D4A, 0x10D65, code_point::letter}, Range{0x10D69, 0x10D6D, code_point::mark},
    Range{0x10D6F, 0x10D85, code_point::letter}, Range{0x10EC2, 0x10EC4, code_point::letter},
    Range{0x10EFC, 0x10EFC, code_point::mark},   Range{0x11380, 0x11389, code_point::letter},
    Range{0x1138B, 0x1138B, code_point::letter}, Range{0x1138E, 0x1138E, code_point::letter},
    Range{0x11390, 0x113B5, code_point::letter}, Range{0x113B7, 0x113B7, code_point::letter},
    Range{0x113B8, 0x113C0, code_point::mark},   Range{0x113C2, 0x113C2, code_point::mark},
    Range{0x113C5, 0x113C5, code_point::mark},   Range{0x113C7, 0x113CA, code_point::mark},
    Range{0x113CC, 0x113D0, code_point::mark},   Range{0x113D1, 0x113D1, code_point::letter},
    Range{0x113D2, 0x113D2, code_point::mark},   Range{0x113D3, 0x113D3, code_point::letter},
    Range{0x113E1, 0x113E2, code_point::mark},   Range{0x116D0, 0x116E3, code_point::number},
    Range{0x11BC0, 0x11BE0, code_point::letter}, Range{0x11BF0, 0x11BF9, code_point::number},
    Range{0x11F5A, 0x11F5A, code_point::mark},   Range{0x13460, 0x143FA, code_point::letter},
    Range{0x16100, 0x1611D, code_point::letter}, Range{0x1611E, 0x1612F, code_point::mark},
    Range{0x16130, 0x16139, code_point::number}, Range{0x16D40, 0x16D6C, code_point::letter},
    Range{0x16D70, 0x16D79, code_point::number}, Range{0x18CFF, 0x18CFF, code_point::letter},
    Range{0x1CCF0, 0x1CCF9, code_point::number}, Range{0x1E5D0, 0x1E5ED, code_point::letter},
    Range{0x1E5EE, 0x1E5EF, code_point::mark},   Range{0x1E5F0, 0x1E5F0, code_point::letter},
    Range{0x1E5F1, 0x1E5FA, code_point::number}, Range{0x2EBF0, 0x2EE5D, code_point::letter}};

bool is_hangul_syllable(char32_t c) { return c >= 0xAC00 && c <= 0xD7A3; }

/// Alphabetic beyond L, Nl and marks is a few circled and squared letters of category So (Other_Alphabetic).
bool is_alphabetic_symbol(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

uint8_t category_properties(char32_t c, int category) {
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return code_point::letter | code_point::word;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return code_point::mark | code_point::word;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
      return code_point::number | code_point::word;
    case UTF8PROC_CATEGORY_NO:
      return code_point::number;
    case UTF8PROC_CATEGORY_PC:
      return code_point::word;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return code_point::white_space;
    default:
      return is_alphabetic_symbol(c) ? code_point::word : 0;
  }
}

uint8_t basic_properties(char32_t c) {
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  uint8_t bits = category_properties(c, property->category);
  if ((c >= 0x09 && c <= 0x0D) || c == 0x85) bits |= code_point::white_space;
  if (c == '\r' || c == '\n') bits |= code_point::newline;
  if (c == 0x200C || c == 0x200D) bits |= code_point::word;
  if (property->combining_class != 0) bits |= code_point::reorders;
  // Conjoining vowels and final consonants of Hangul, which compose by rule instead of by table.
  if ((c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2)) bits |= code_point::composes;
  return bits;
}

/// The code point whose NFC_Quick_Check the canonical decomposition of `c` decides: `c` itself (No) when it
/// does not compose back, else the last character of its decomposition (Maybe); 0 when `c` has none.
char32_t composing_code_point(char32_t c) {
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (is_hangul_syllable(c) || property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0)
    return 0;
  std::array<utf8proc_int32_t, 8> decomposed{};
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), decomposed.data(),
                              static_cast<utf8proc_ssize_t>(decomposed.size()), UTF8PROC_DECOMPOSE, nullptr);
  if (count <= 0 || count > static_cast<utf8proc_ssize_t>(decomposed.size())) return 0;
  const auto last = static_cast<char32_t>(decomposed[static_cast<size_t>(count) - 1]);
  const auto composed = utf8proc_normalize_utf32(
      decomposed.data(), count, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  return composed == 1 && static_cast<char32_t>(decomposed[0]) == c ? last : c;
}

}  // namespace

CodePointTable::CodePointTable() : block_of_{} {
  std::map<char32_t, Block> blocks;
  const auto fill = [&blocks](char32_t begin, char32_t end) {
    for (char32_t c = begin; c < end; ++c) blocks[c >> 8][c & 0xFF] |= basic_properties(c);
    for (char32_t c = begin; c < end; ++c) {
      if (const char32_t composing = composing_code_point(c); composing != 0) {
        blocks[composing >> 8][composing & 0xFF] |= code_point::composes;
      }
    }
  };
  fill(0, planes_end);
  fill(tags_begin, tags_end);
  for (const auto& [first, last, bits] : added_after_15) {
    for (char32_t c = first; c <= last; ++c) blocks[c >> 8][c & 0xFF] |= bits | code_point::word;
  }
  blocks_.push_back(Block{});
  std::map<Block, uint16_t> known{{Block{}, 0}};
  for (const auto& [number, block] : blocks) {
    const auto [at, is_new] = known.try_emplace(block, static_cast<uint16_t>(blocks_.size()));
    if (is_new) blocks_.push_back(block);
    block_of_[number] = at->second;
  }
}

const CodePointTable& code_points() {
  static const CodePointTable table;
  return table;
}

}  // namespace hexlm
