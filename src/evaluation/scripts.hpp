#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.hpp"

namespace hexlm {

/// What kind of text a token is part of.
enum class TextScript : uint8_t { latin, han, code, other };
inline constexpr std::array<TextScript, 4> all_scripts = {TextScript::latin, TextScript::han,
                                                          TextScript::code, TextScript::other};
std::string_view to_string(TextScript script);

/// The script of each token: `code` when it begins in a line of program text; else that of the first letter
/// in it: Latin, or Han with the punctuation of Chinese; else `other` (digits, punctuation, spaces, other
/// scripts, special tokens).
std::vector<TextScript> token_scripts(const Tokenizer& tokenizer, std::span<const int32_t> ids);

/// Program text by its looks: no Han characters, and at least two of the marks ( ) { } [ ] < > = ; _ and at
/// least one in 12 characters; or inside ``` fences.
bool looks_like_code(std::string_view line);

}  // namespace hexlm
