#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/byte_pair.hpp"

namespace hexlm {

/// What a tokenizer.json says, reduced to what byte-level BPE needs.
struct TokenizerDefinition {
  BytePairEncoder model;
  std::vector<AddedToken> added_tokens;
  bool nfc = false;
  std::vector<std::string> patterns;  // one per Split pre-tokenizer, applied in turn
  std::vector<int32_t> prefix;        // what the post-processor puts before a text …
  std::vector<int32_t> suffix;        // … and after it
};

/// Reads `json`, the text of a tokenizer.json. `truncation` and `padding` are
/// ignored, as transformers does. Errors: bad_input (malformed JSON, a field missing or of another type, ids
/// that clash), unsupported (a kind of model, normalizer, pre-tokenizer, post-processor or decoder other than
/// byte-level BPE uses), limit.
Result<TokenizerDefinition> read_tokenizer_json(std::string_view json);

}  // namespace hexlm
