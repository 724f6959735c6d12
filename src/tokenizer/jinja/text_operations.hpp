#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/value.hpp"

namespace hexlm::jinja {

// What string methods and filters share. All stop early when the budget is exhausted.

/// str.replace; all occurrences when `count` is negative.
std::string replace_text(Budget& budget, std::string_view text, std::string_view old_text,
                         std::string_view new_text, int64_t count);
/// str.split, or str.rsplit from the right; null `separator` splits at runs of whitespace. A list of texts.
Value split_text(Budget& budget, std::string_view text, const std::string* separator, int64_t limit,
                 bool from_right, bool markup);
std::string join_texts(Budget& budget, const std::vector<std::string>& parts, std::string_view separator);
/// `count` must be non-negative and the result within the budget.
std::string repeat_text(std::string_view text, int64_t count);

}  // namespace hexlm::jinja
