#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"

namespace hexlm {

/// 64 well-mixed bits of a short byte string.
uint64_t hash_bytes(std::string_view bytes);

/// Token bytes by id and id by token bytes. Tokens are kept as the bytes they stand for, not as the file
/// spells them. Ids need not be contiguous.
class Vocabulary {
 public:
  /// Ids take 22 bits of a merge key (see MergeTable); the largest vocabularies in use have 0.26 million.
  static constexpr int32_t max_size = 1 << 22;

  void reserve(size_t tokens, size_t bytes);
  /// Adds a token as the `vocab` of tokenizer.json spells it, in the byte-level alphabet. A spelling with
  /// other characters stands for its own UTF-8 bytes, and no text is ever encoded to it. Errors: bad_input
  /// when the id or the spelling is taken; or not below max_size; limit when all tokens together
  /// exceed 2 GiB.
  Status add(std::string_view spelling, int32_t id);
  /// Adds a token that stands for its own UTF-8 bytes. Errors: as `add`.
  Status add_literal(std::string_view content, int32_t id);
  /// The id of a spelling or of a literal token, or -1. `buffer` is working memory.
  int32_t find_spelling(std::string_view spelling, std::string& buffer) const;
  /// The id of the token that is `bytes` (literal tokens aside), or -1.
  int32_t find(std::string_view bytes) const { return find(bytes, hash_bytes(bytes)); }
  int32_t find(std::string_view bytes, uint64_t hash) const;
  bool contains(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < spans_.size() && spans_[static_cast<size_t>(id)].used;
  }
  /// Empty for an unknown id.
  std::string_view bytes(int32_t id) const;
  /// One more than the largest id.
  int32_t size() const { return static_cast<int32_t>(spans_.size()); }

 private:
  struct Span {
    uint32_t offset = 0;
    uint32_t length : 31 = 0;
    uint32_t used : 1 = 0;
  };
  struct Slot {
    uint32_t tag = 0;
    int32_t id = -1;
  };
  Status append(std::string_view bytes, int32_t id, std::string_view spelling);
  void insert(int32_t id, uint64_t hash);
  void grow(size_t slots);

  std::string bytes_;
  std::vector<Span> spans_;
  std::vector<Slot> slots_;  // open addressing, a power of two
  size_t filled_ = 0;
  std::unordered_map<std::string, int32_t> literals_;
  std::string buffer_;
};

}  // namespace hexlm
