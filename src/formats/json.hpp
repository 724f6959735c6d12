#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace hexlm {

using Json = nlohmann::ordered_json;

/// Parses JSON with a nesting limit of 256 and without exceptions. Errors: bad_input naming `origin` and the
/// byte offset.
Result<Json> parse_json(std::string_view text, const std::string& origin);
/// Reads and parses a file of at most `limit` bytes.
Result<Json> read_json(const std::string& path, uint64_t limit = uint64_t{64} << 20);

}  // namespace hexlm
