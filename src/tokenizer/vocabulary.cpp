#include "tokenizer/vocabulary.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "tokenizer/byte_level.hpp"

namespace hexlm {
namespace {

constexpr uint64_t golden_ratio = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: spreads consecutive values

uint64_t mix(uint64_t x) {
  x *= golden_ratio;
  return x ^ (x >> 32);
}

template <class T>
uint64_t load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

}  // namespace

uint64_t hash_bytes(std::string_view bytes) {
  const char* at = bytes.data();
  const size_t size = bytes.size();
  uint64_t hash = size * golden_ratio;
  if (size >= 8) {
    const char* last = at + size - 8;
    for (; at < last; at += 8) hash = mix(hash ^ load<uint64_t>(at));
    return mix(mix(hash ^ load<uint64_t>(last)));
  }
  uint64_t word = 0;
  if (size >= 4) {
    word = load<uint32_t>(at) << 32 | load<uint32_t>(at + size - 4);
  } else {
    for (size_t i = 0; i < size; ++i) word = word << 8 | static_cast<unsigned char>(at[i]);
  }
  return mix(mix(hash ^ word));
}

void Vocabulary::reserve(size_t tokens, size_t bytes) {
  bytes_.reserve(bytes);
  spans_.reserve(tokens);
  if (std::bit_ceil(tokens * 2) > slots_.size()) grow(std::bit_ceil(tokens * 2));
}

Status Vocabulary::append(std::string_view bytes, int32_t id, std::string_view spelling) {
  if (id < 0 || id >= max_size) {
    return fail(ErrorCode::bad_input,
                fmt::format("token \"{}\" has id {}, expected 0 to {}", spelling, id, max_size - 1));
  }
  if (contains(id)) {
    return fail(ErrorCode::bad_input,
                fmt::format("token \"{}\" has id {}, which another token has already", spelling, id));
  }
  if (bytes_.size() + bytes.size() > INT32_MAX) {
    return fail(ErrorCode::limit, "the tokens of the vocabulary exceed 2 GiB together");
  }
  const auto index = static_cast<size_t>(id);
  if (index >= spans_.size()) spans_.resize(index + 1);
  spans_[index].offset = static_cast<uint32_t>(bytes_.size());
  spans_[index].length = static_cast<uint32_t>(bytes.size()) & INT32_MAX;
  spans_[index].used = 1;
  bytes_.append(bytes);
  return {};
}

Status Vocabulary::add(std::string_view spelling, int32_t id) {
  buffer_.clear();
  if (!append_byte_level(spelling, buffer_)) return add_literal(spelling, id);
  const uint64_t hash = hash_bytes(buffer_);
  if (const int32_t other = find(buffer_, hash); other >= 0) {
    return fail(ErrorCode::bad_input,
                fmt::format("token \"{}\" appears twice, with ids {} and {}", spelling, other, id));
  }
  HEXLM_TRY(append(buffer_, id, spelling));
  if (filled_ * 2 >= slots_.size()) grow(std::max<size_t>(slots_.size() * 2, 64));
  insert(id, hash);
  return {};
}

Status Vocabulary::add_literal(std::string_view content, int32_t id) {
  if (const auto other = literals_.find(std::string(content)); other != literals_.end()) {
    return fail(ErrorCode::bad_input,
                fmt::format("token \"{}\" appears twice, with ids {} and {}", content, other->second, id));
  }
  HEXLM_TRY(append(content, id, content));
  literals_.emplace(content, id);
  return {};
}

int32_t Vocabulary::find_spelling(std::string_view spelling, std::string& buffer) const {
  buffer.clear();
  if (append_byte_level(spelling, buffer)) {
    if (const int32_t id = find(buffer); id >= 0) return id;
  }
  if (literals_.empty()) return -1;
  const auto literal = literals_.find(std::string(spelling));
  return literal == literals_.end() ? -1 : literal->second;
}

int32_t Vocabulary::find(std::string_view token, uint64_t hash) const {
  if (slots_.empty()) return -1;
  const size_t mask = slots_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.id < 0) return -1;
    if (slot.tag == tag && bytes(slot.id) == token) return slot.id;
  }
}

std::string_view Vocabulary::bytes(int32_t id) const {
  if (!contains(id)) return {};
  const Span span = spans_[static_cast<size_t>(id)];
  return std::string_view(bytes_).substr(span.offset, span.length);
}

void Vocabulary::insert(int32_t id, uint64_t hash) {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].id >= 0) at = (at + 1) & mask;
  slots_[at] = {static_cast<uint32_t>(hash >> 32), id};
  ++filled_;
}

void Vocabulary::grow(size_t slots) {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots));
  filled_ = 0;
  for (const Slot& slot : old) {
    if (slot.id >= 0) insert(slot.id, hash_bytes(bytes(slot.id)));
  }
}

}  // namespace hexlm
