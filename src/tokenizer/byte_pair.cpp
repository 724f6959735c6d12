#include "tokenizer/byte_pair.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <functional>

namespace hexlm {
namespace {

/// Up to this many bytes scanning all ranks for the smallest is as fast as a priority queue: on runs of
/// Chinese with Qwen3's merges 48 did best of 24, 48, 96 and 160 (28 MB/s where 160 gave 10 to 20).
constexpr size_t short_word = 48;

/// No UTF-8 text holds these bytes, so a vocabulary may lack them.
bool never_in_utf8(int byte) { return byte == 0xC0 || byte == 0xC1 || byte >= 0xF5; }

}  // namespace

void MergeTable::reserve(size_t merges) {
  merged_.reserve(merges);
  const size_t slots = std::bit_ceil(merges + merges / 2);
  if (slots > slots_.size()) grow(slots);
}

Status MergeTable::add(int32_t left, int32_t right, int32_t merged) {
  if (merged_.size() >= max_merges) {
    return fail(ErrorCode::limit, fmt::format("the model has more than {} merges", max_merges));
  }
  if (filled_ * 4 >= slots_.size() * 3) grow(slots_.size() * 2);
  insert(static_cast<uint64_t>(left) << 42 | static_cast<uint64_t>(right) << 20 | merged_.size());
  merged_.push_back(merged);
  return {};
}

void MergeTable::insert(uint64_t entry) {
  const uint64_t key = entry & ~uint64_t{no_rank};
  const uint64_t hash = hash_of(key);
  filter_[filter_word(hash)] |= filter_bit(hash);
  size_t at = hash >> shift_;
  while (slots_[at] != empty_slot && (slots_[at] & ~uint64_t{no_rank}) != key) at = (at + 1) & mask_;
  if (slots_[at] == empty_slot) ++filled_;
  slots_[at] = entry;
}

void MergeTable::grow(size_t slots) {
  const std::vector<uint64_t> old = std::exchange(slots_, std::vector<uint64_t>(slots, empty_slot));
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  filled_ = 0;
  for (const uint64_t entry : old) {
    if (entry != empty_slot) insert(entry);
  }
}

Result<BytePairEncoder> BytePairEncoder::make(Vocabulary vocabulary, MergeTable merges, bool ignore_merges) {
  BytePairEncoder encoder(std::move(vocabulary), std::move(merges), ignore_merges);
  for (int byte = 0; byte < 256; ++byte) {
    if (encoder.byte_ids_[static_cast<size_t>(byte)] < 0 && !never_in_utf8(byte)) {
      return fail(ErrorCode::bad_input,
                  fmt::format("the vocabulary has no token for byte 0x{:02X}, expected one for every byte of "
                              "the byte-level alphabet",
                              byte));
    }
  }
  return encoder;
}

BytePairEncoder::BytePairEncoder(Vocabulary vocabulary, MergeTable merges, bool ignore_merges)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), ignore_merges_(ignore_merges) {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    byte_ids_[static_cast<size_t>(byte)] = vocabulary_.find(std::string_view(&text, 1));
  }
  byte_pair_ranks_.assign(size_t{256} * 256, MergeTable::no_rank);
  for (size_t left = 0; left < 256; ++left) {
    for (size_t right = 0; right < 256; ++right) {
      if (byte_ids_[left] < 0 || byte_ids_[right] < 0) continue;
      byte_pair_ranks_[left << 8 | right] = merges_.rank(byte_ids_[left], byte_ids_[right]);
    }
  }
}

void BytePairEncoder::encode(std::string_view word, BytePairScratch& scratch,
                             std::vector<int32_t>& out) const {
  using Word = BytePairScratch::Word;
  if (word.size() == 1) {
    out.push_back(byte_ids_[static_cast<unsigned char>(word[0])]);
    return;
  }
  if (word.size() > Word::max_bytes) {
    merge(word, scratch, out);
    return;
  }
  Word& known = scratch.words_[hash_bytes(word) & (BytePairScratch::remembered_words - 1)];
  if (known.bytes == word.size() && std::memcmp(known.text.data(), word.data(), word.size()) == 0) {
    out.insert(out.end(), known.id.begin(), known.id.begin() + known.ids);
    return;
  }
  const size_t begin = out.size();
  merge(word, scratch, out);
  const size_t count = out.size() - begin;
  if (count > Word::max_ids) return;
  known.bytes = static_cast<uint8_t>(word.size());
  known.ids = static_cast<uint8_t>(count);
  std::copy(word.begin(), word.end(), known.text.begin());
  std::copy(out.begin() + static_cast<ptrdiff_t>(begin), out.end(), known.id.begin());
}

void BytePairEncoder::merge(std::string_view word, BytePairScratch& scratch,
                            std::vector<int32_t>& out) const {
  if (ignore_merges_) {
    if (const int32_t id = vocabulary_.find(word); id >= 0) {
      out.push_back(id);
      return;
    }
  }
  if (word.size() <= short_word) {
    merge_short(word, scratch, out);
  } else {
    merge_long(word, scratch, out);
  }
}

void BytePairEncoder::merge_short(std::string_view word, BytePairScratch& scratch,
                                  std::vector<int32_t>& out) const {
  std::array<int32_t, short_word> ids;
  std::array<uint32_t, short_word> ranks;  // ranks[i] is that of the pair (i, i + 1)
  size_t count = word.size();
  for (size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(word[i]);
    ids[i] = byte_ids_[byte];
    ranks[i] =
        i + 1 < count ? byte_pair_rank(byte, static_cast<unsigned char>(word[i + 1])) : MergeTable::no_rank;
  }
  static_cast<void>(scratch);
  while (count > 1) {
    uint32_t best = MergeTable::no_rank;
    for (size_t i = 0; i + 1 < count; ++i) best = std::min(best, ranks[i]);
    if (best == MergeTable::no_rank) break;
    size_t at = 0;
    while (ranks[at] != best) ++at;
    ids[at] = merges_.merged(best);
    --count;
    std::copy(ids.begin() + at + 2, ids.begin() + count + 1, ids.begin() + at + 1);
    std::copy(ranks.begin() + at + 2, ranks.begin() + count + 1, ranks.begin() + at + 1);
    ranks[at] = at + 1 < count ? merges_.rank(ids[at], ids[at + 1]) : MergeTable::no_rank;
    if (at > 0) ranks[at - 1] = merges_.rank(ids[at - 1], ids[at]);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count));
}

void BytePairEncoder::merge_long(std::string_view word, BytePairScratch& scratch,
                                 std::vector<int32_t>& out) const {
  // A linked list of symbols, and a heap of (rank, position): an entry is stale when the rank at its position
  // is no longer the one it holds.
  constexpr uint32_t list_end = UINT32_MAX;
  const size_t count = word.size();
  auto& ids = scratch.ids_;
  auto& ranks = scratch.ranks_;
  auto& links = scratch.links_;
  auto& queue = scratch.queue_;
  ids.resize(count);
  ranks.resize(count);
  links.resize(count);
  queue.clear();
  const auto by_rank = std::greater<>();
  for (size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(word[i]);
    ids[i] = byte_ids_[byte];
    ranks[i] =
        i + 1 < count ? byte_pair_rank(byte, static_cast<unsigned char>(word[i + 1])) : MergeTable::no_rank;
    links[i] = {static_cast<uint32_t>(i) - 1, i + 1 < count ? static_cast<uint32_t>(i) + 1 : list_end};
    if (ranks[i] != MergeTable::no_rank) queue.push_back(uint64_t{ranks[i]} << 32 | i);
  }
  std::make_heap(queue.begin(), queue.end(), by_rank);
  const auto update = [&](uint32_t at) {
    const uint32_t next = links[at].next;
    ranks[at] = next == list_end ? MergeTable::no_rank : merges_.rank(ids[at], ids[next]);
    if (ranks[at] == MergeTable::no_rank) return;
    queue.push_back(uint64_t{ranks[at]} << 32 | at);
    std::push_heap(queue.begin(), queue.end(), by_rank);
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), by_rank);
    const uint64_t entry = queue.back();
    queue.pop_back();
    const auto at = static_cast<uint32_t>(entry);
    const auto rank = static_cast<uint32_t>(entry >> 32);
    if (ranks[at] != rank) continue;
    const uint32_t gone = links[at].next;
    ids[at] = merges_.merged(rank);
    ranks[gone] = MergeTable::no_rank;
    links[at].next = links[gone].next;
    if (links[at].next != list_end) links[links[at].next].previous = at;
    update(at);
    if (at != 0) update(links[at].previous);
  }
  for (uint32_t at = 0; at != list_end; at = links[at].next) out.push_back(ids[at]);
}

}  // namespace hexlm
