#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace hexlm {

/// Cuts well-formed UTF-8 text into the pieces that a Split pre-tokenizer with behaviour Isolated yields:
/// each match of its regular expression, and what lies between matches. Immutable, usable from several
/// threads.
class Splitter {
 public:
  virtual ~Splitter() = default;
  /// The end of the piece of `text` that begins at `begin` (< text.size()); `begin` itself when the match
  /// needed more memory or time than PCRE2 grants.
  virtual size_t piece_end(std::string_view text, size_t begin) const = 0;
};

/// Splits as the regular expressions of Qwen2/3, Qwen3.5 and Llama 3 do, without a regular expression engine;
/// the text is read once. They are one expression with two parameters:
///   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?W+|\p{N}{1,D}|
///   ?[^\sW\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
/// where W, the characters that words consist of, is \p{L} or [\p{L}\p{M}], and D is 1 or 3.
class WordSplitter final : public Splitter {
 public:
  /// Nothing when `pattern` is not, to the letter, one of these expressions.
  static std::optional<WordSplitter> for_pattern(std::string_view pattern);
  size_t piece_end(std::string_view text, size_t begin) const override;

 private:
  WordSplitter(bool marks_in_words, int max_digits);
  unsigned word_mask_;
  int max_digits_;
};

/// Splits by any other regular expression, with PCRE2 (JIT-compiled where the system allows it).
/// Hugging Face tokenizers use Oniguruma: constructs that the two read differently are refused.
class RegexSplitter final : public Splitter {
 public:
  /// Errors: unsupported (names the construct), also for an expression that matches empty text.
  static Result<RegexSplitter> compile(std::string_view pattern);
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;
  ~RegexSplitter() override;
  size_t piece_end(std::string_view text, size_t begin) const override;

 private:
  struct Code;
  explicit RegexSplitter(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

/// The fast splitter where the pattern is known, else PCRE2.
Result<std::unique_ptr<Splitter>> make_splitter(std::string_view pattern);

/// `pattern` (Oniguruma, Ruby syntax, as in tokenizer.json) as a PCRE2 pattern of the same meaning.
/// Errors: unsupported, naming the construct that has none.
Result<std::string> translate_regex(std::string_view pattern);

}  // namespace hexlm
