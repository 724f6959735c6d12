#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace hexlm::jinja {

struct Token {
  enum class Kind {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    symbol,
    end
  };
  Kind kind = Kind::end;
  /// Template text, name, symbol, decoded string or digits, by kind.
  std::string text;
  /// Byte of the normalized source at which the token begins.
  uint32_t offset = 0;
  uint64_t integer = 0;
  double real = 0;

  bool is_name(std::string_view word) const { return kind == Kind::name && text == word; }
  bool is_symbol(std::string_view word) const { return kind == Kind::symbol && text == word; }
};

/// "line 3, column 7" of a byte; columns count characters from 1.
std::string describe_position(std::string_view source, size_t offset);

/// Line breaks become \n and the last one is dropped, as Jinja does before anything else.
std::string normalize_source(std::string_view source);

/// Splits a normalized source with trim_blocks and lstrip_blocks on. The last token is Kind::end.
/// Errors: bad_input with `error_offset` set for unbalanced brackets and unfinished tags.
Result<std::vector<Token>> tokenize(std::string_view source, size_t& error_offset);

}  // namespace hexlm::jinja
