#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace hexlm {

/// A byte-level BPE tokenizer read from a Hugging Face `tokenizer.json` (Qwen2/2.5/3/3.5 and Llama 3 files:
/// NFC or no normaliser, Split regex + ByteLevel, added tokens, `ignore_merges`, BOS by post-processor).
/// Immutable after loading; `encode` and `decode` may be called from several threads.
class Tokenizer {
 public:
  /// Errors: bad_input (file, field, what was expected), unsupported (a model, normaliser or pre-tokenizer
  /// kind other than the above, named).
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> parse(std::string_view json, const std::string& origin);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ids exactly as Hugging Face tokenizers' `encode(text, add_special_tokens=…)`. Added tokens in the text
  /// are recognised unless `parse_added` is false (for untrusted text inside a prompt).
  /// Errors: bad_input when `text` is not valid UTF-8 (names the byte offset).
  Result<std::vector<int32_t>> encode(std::string_view text, bool add_special_tokens = false,
                                      bool parse_added = true) const;
  /// Bytes of the tokens, joined, invalid sequences replaced by U+FFFD; ids out of range are skipped.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;
  /// The raw bytes of one token (may be part of a character); empty for an unknown id.
  std::string_view token_bytes(int32_t id) const;
  std::optional<int32_t> token_id(std::string_view token) const;
  /// `special: true` in added_tokens.
  bool is_special(int32_t id) const;
  /// One more than the largest id.
  int32_t size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Turns a stream of ids into text pieces that never end inside a UTF-8 character: incomplete bytes are held
/// back until they are complete or known to be invalid.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}
  std::string push(int32_t id);
  /// What is held back, as U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;
};

}  // namespace hexlm
