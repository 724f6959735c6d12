#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/vocabulary.hpp"

namespace hexlm {

/// The merges of a BPE model: (left id, right id) -> rank, and rank -> merged id.
class MergeTable {
 public:
  /// Two 22-bit ids and a 20-bit rank fill one 64-bit slot, so that a lookup touches one cache line.
  static constexpr uint32_t max_merges = (1U << 20) - 1;
  static constexpr uint32_t no_rank = max_merges;

  void reserve(size_t merges);
  /// The next rank; a pair given twice keeps its last rank, as in Hugging Face tokenizers.
  /// Errors: limit beyond max_merges.
  Status add(int32_t left, int32_t right, int32_t merged);
  /// The rank of the pair, or no_rank.
  uint32_t rank(int32_t left, int32_t right) const {
    const uint64_t key = static_cast<uint64_t>(left) << 42 | static_cast<uint64_t>(right) << 20;
    const uint64_t hash = hash_of(key);
    if ((filter_[filter_word(hash)] & filter_bit(hash)) == 0) return no_rank;
    for (size_t at = hash >> shift_;; at = (at + 1) & mask_) {
      if (slots_[at] == empty_slot) return no_rank;
      if ((slots_[at] & ~uint64_t{no_rank}) == key) return static_cast<uint32_t>(slots_[at] & no_rank);
    }
  }
  int32_t merged(uint32_t rank) const { return merged_[rank]; }

 private:
  static constexpr uint64_t empty_slot = ~uint64_t{0};
  static uint64_t hash_of(uint64_t key) { return key * 0x9E3779B97F4A7C15; }  // 2^64 / golden ratio
  /// Most pairs asked for have no rank. A filter of 2^20 bits (128 KiB) stays in cache and answers for six of
  /// seven of them with Qwen3's 151,387 merges, where the slots (2 MiB) would miss: encoding gains 15 %.
  static size_t filter_word(uint64_t hash) { return hash >> 50; }
  static uint64_t filter_bit(uint64_t hash) { return uint64_t{1} << (hash >> 44 & 63); }
  void grow(size_t slots);
  void insert(uint64_t entry);

  std::vector<uint64_t> slots_ = std::vector<uint64_t>(4, empty_slot);  // at most three quarters are filled
  std::vector<uint64_t> filter_ = std::vector<uint64_t>(size_t{1} << 14);
  size_t mask_ = 3;
  int shift_ = 62;
  size_t filled_ = 0;
  std::vector<int32_t> merged_;
};

/// Working memory of one encode call, with the words that earlier calls met and their ids.
class BytePairScratch {
 public:
  BytePairScratch() : words_(remembered_words) {}

 private:
  friend class BytePairEncoder;
  /// One cache line: longer words, or words of more tokens, are rare and encoded each time.
  struct alignas(64) Word {
    static constexpr size_t max_bytes = 30;
    static constexpr size_t max_ids = 8;
    uint8_t bytes = 0;
    uint8_t ids = 0;
    std::array<char, max_bytes> text;
    std::array<int32_t, max_ids> id;
  };
  /// 512 KiB: half of a small second-level cache. A word lives at the slot its hash names.
  static constexpr size_t remembered_words = 1 << 13;

  struct Link {
    uint32_t previous, next;
  };
  std::vector<Word> words_;
  std::vector<int32_t> ids_;
  std::vector<uint32_t> ranks_;
  std::vector<Link> links_;
  std::vector<uint64_t> queue_;
};

/// Byte-pair encoding of words: the lowest-ranked adjacent pair is merged, the leftmost of equals first,
/// until no pair has a rank.
class BytePairEncoder {
 public:
  /// Takes ownership. With `ignore_merges` a word that is a token is that token. Errors: bad_input when the
  /// vocabulary lacks a byte that UTF-8 text can hold.
  static Result<BytePairEncoder> make(Vocabulary vocabulary, MergeTable merges, bool ignore_merges);

  /// Appends the ids of `word` (not empty) to `out`.
  void encode(std::string_view word, BytePairScratch& scratch, std::vector<int32_t>& out) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  Vocabulary& vocabulary() { return vocabulary_; }

 private:
  BytePairEncoder(Vocabulary vocabulary, MergeTable merges, bool ignore_merges);
  void merge(std::string_view word, BytePairScratch& scratch, std::vector<int32_t>& out) const;
  void merge_short(std::string_view word, BytePairScratch& scratch, std::vector<int32_t>& out) const;
  void merge_long(std::string_view word, BytePairScratch& scratch, std::vector<int32_t>& out) const;
  uint32_t byte_pair_rank(unsigned char left, unsigned char right) const {
    return byte_pair_ranks_[static_cast<size_t>(left) << 8 | right];
  }

  Vocabulary vocabulary_;
  MergeTable merges_;
  bool ignore_merges_;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<uint32_t> byte_pair_ranks_;  // the first look-ups of every word, without hashing
};

}  // namespace hexlm
