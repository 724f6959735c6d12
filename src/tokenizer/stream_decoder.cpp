#include <string>

#include "tokenizer/tokenizer.hpp"
#include "tokenizer/utf8.hpp"

namespace hexlm {

std::string StreamDecoder::push(int32_t id) {
  if (skip_special_tokens_ && tokenizer_->is_special(id)) return {};
  pending_.append(tokenizer_->token_bytes(id));
  const size_t complete = complete_utf8_prefix(pending_);
  std::string text;
  append_lossy_utf8(std::string_view(pending_).substr(0, complete), text);
  pending_.erase(0, complete);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  append_lossy_utf8(pending_, text);
  pending_.clear();
  return text;
}

}  // namespace hexlm
