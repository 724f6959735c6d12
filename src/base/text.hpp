#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hexlm {

/// "1.50 GB", "12.3 MB", "812 B" (powers of 1000, as disks are sold and `ls -h --si` shows).
std::string format_bytes(uint64_t bytes);
/// "[32, 128]"
std::string format_shape(std::span<const int64_t> shape);
/// The candidate with the least edit distance, for "did you mean"; empty when `candidates` is.
std::string nearest(std::string_view word, std::span<const std::string> candidates);
/// As above, but empty unless it is likely a slip of `word`: at most one edit for every three letters.
std::string likely_meant(std::string_view word, std::span<const std::string> candidates);
std::vector<std::string_view> split(std::string_view text, char separator);
/// Strict: the whole of `text` must be an integer in range; returns false otherwise.
bool parse_integer(std::string_view text, int64_t& value);
/// True when `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool is_valid_utf8(std::string_view text);
/// The text on one line: control characters as \n, \t or \xNN.
std::string one_line(std::string_view text);

}  // namespace hexlm
