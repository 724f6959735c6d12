#pragma once

#include <string>
#include <string_view>

namespace hexlm {

/// GPT-2's byte-level alphabet, in which vocabularies spell bytes: printable Latin-1 stands for itself, each
/// of the other 68 bytes for U+0100, U+0101, … in order. Appends the bytes that `token` (well-formed UTF-8)
/// spells to `out`; returns false, with `out` as it was, when a character is not of the alphabet.
bool append_byte_level(std::string_view token, std::string& out);

}  // namespace hexlm
