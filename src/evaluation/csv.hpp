#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace hexlm {

struct CsvRecord {
  size_t line = 0;  ///< where it begins, from 1
  std::vector<std::string> fields;
};

/// RFC 4180: fields between commas; quoted ones may hold commas, line breaks and doubled quotes. Empty lines
/// are skipped, a byte order mark too. Errors: bad_input naming `origin` and the line of a quote that never
/// ends or is followed by other text.
Result<std::vector<CsvRecord>> parse_csv(std::string_view text, const std::string& origin);

}  // namespace hexlm
