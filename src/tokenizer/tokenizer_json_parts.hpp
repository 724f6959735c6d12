#pragma once

#include <simdjson.h>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/added_tokens.hpp"

namespace hexlm {

/// What the small parts of a tokenizer.json (all but `model`) say.
struct TokenizerParts {
  std::vector<AddedToken> added_tokens;
  bool nfc = false;
  std::vector<std::string> patterns;
  std::vector<int32_t> prefix, suffix;
  bool has_pre_tokenizer = false;
  bool has_decoder = false;
};

/// Each reads the value of the field of its name. Errors: as read_tokenizer_json.
Status read_added_tokens(simdjson::dom::element value, TokenizerParts& parts);
Status read_normalizer(simdjson::dom::element value, TokenizerParts& parts);
Status read_pre_tokenizer(simdjson::dom::element value, TokenizerParts& parts);
Status read_post_processor(simdjson::dom::element value, TokenizerParts& parts);
Status read_decoder(simdjson::dom::element value, TokenizerParts& parts);
/// Errors: bad_input when a part that byte-level BPE cannot do without is missing.
Status check_parts(const TokenizerParts& parts);

/// bad_input "field WHERE: …" unless `error` is success.
Status json_status(simdjson::error_code error, std::string_view where);
/// "WHERE is "FOUND", supported is EXPECTED".
tl::unexpected<Error> unsupported_kind(std::string_view where, std::string_view found,
                                       std::string_view expected);
/// An id of the file. Errors: bad_input naming token and value for one that no vocabulary can hold.
Result<int32_t> token_id(std::string_view token, int64_t id);

}  // namespace hexlm
