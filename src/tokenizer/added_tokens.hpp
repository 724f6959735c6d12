#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hexlm {

/// An entry of `added_tokens` in tokenizer.json.
struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // matches only where no word character touches it
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // swallows the white space after it
  bool normalized = false;   // sought in the normalized text instead of the text as given
  bool special = false;
};

/// Finds added tokens in text: the leftmost match, the longest of several there.
class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin, end;  // with the white space that lstrip and rstrip swallow
    int32_t id;
  };

  AddedTokenMatcher();
  /// `content` is what to look for (not empty): the normalized content for normalized tokens.
  void add(const AddedToken& token, std::string_view content);
  bool empty() const { return tokens_.empty(); }

  /// Walks over the matches in `text`. A match may begin before the end of the one before it: white space can
  /// be swallowed from both sides, and white space that `rstrip` swallowed can be a token itself, as in
  /// Hugging Face tokenizers.
  class Scan {
   public:
    Scan(const AddedTokenMatcher& matcher, std::string_view text) : matcher_(&matcher), text_(text) {}
    std::optional<Match> next();

   private:
    const AddedTokenMatcher* matcher_;
    std::string_view text_;
    size_t searched_ = 0;  // the next match begins here or later
  };

 private:
  /// A node of the trie of all contents: children are a list, since nearly all nodes have one.
  struct Node {
    uint32_t child = 0, sibling = 0;
    int32_t token = -1;  // index into tokens_
    unsigned char byte = 0;
  };
  struct Token {
    AddedToken flags;
    size_t length;
  };
  uint32_t child_of(uint32_t node, unsigned char byte) const;
  size_t find_first_byte(std::string_view text, size_t at) const;
  /// The index of the longest token at `at`, or -1.
  int32_t longest_at(std::string_view text, size_t at) const;

  std::vector<Node> nodes_;
  std::vector<Token> tokens_;
  std::string first_bytes_;  // distinct
  std::vector<bool> is_first_byte_;
};

}  // namespace hexlm
