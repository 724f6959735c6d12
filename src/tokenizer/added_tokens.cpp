#include "tokenizer/added_tokens.hpp"

#include <algorithm>

#include "tokenizer/code_points.hpp"
#include "tokenizer/utf8.hpp"

namespace hexlm {
namespace {

uint8_t bits_at(std::string_view text, size_t at) {
  return code_points()[read_character(text.data() + at).code_point];
}

bool is_alone(std::string_view text, size_t begin, size_t end) {
  const bool word_before =
      begin > 0 && (bits_at(text, last_character(text.substr(0, begin))) & code_point::word) != 0;
  const bool word_after = end < text.size() && (bits_at(text, end) & code_point::word) != 0;
  return !word_before && !word_after;
}

size_t white_space_begin(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t last = last_character(text.substr(0, end));
    if ((bits_at(text, last) & code_point::white_space) == 0) break;
    end = last;
  }
  return end;
}

size_t white_space_end(std::string_view text, size_t at) {
  while (at < text.size() && (bits_at(text, at) & code_point::white_space) != 0)
    at += read_character(text.data() + at).length;
  return at;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher() : nodes_(1), is_first_byte_(256) {}

void AddedTokenMatcher::add(const AddedToken& token, std::string_view content) {
  uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t child = child_of(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.child = 0, .sibling = nodes_[node].child, .token = -1, .byte = byte});
      nodes_[node].child = child;
    }
    node = child;
  }
  const auto first = static_cast<unsigned char>(content[0]);
  if (!is_first_byte_[first]) first_bytes_.push_back(content[0]);
  is_first_byte_[first] = true;
  // Two normalized tokens may normalize to the same content: the first one wins.
  if (nodes_[node].token < 0) nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token, content.size()});
}

uint32_t AddedTokenMatcher::child_of(uint32_t node, unsigned char byte) const {
  uint32_t child = nodes_[node].child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

size_t AddedTokenMatcher::find_first_byte(std::string_view text, size_t at) const {
  if (first_bytes_.size() == 1) return std::min(text.find(first_bytes_[0], at), text.size());
  while (at < text.size() && !is_first_byte_[static_cast<unsigned char>(text[at])]) ++at;
  return at;
}

int32_t AddedTokenMatcher::longest_at(std::string_view text, size_t at) const {
  int32_t longest = -1;
  uint32_t node = 0;
  for (; at < text.size(); ++at) {
    node = child_of(node, static_cast<unsigned char>(text[at]));
    if (node == 0) break;
    if (nodes_[node].token >= 0) longest = nodes_[node].token;
  }
  return longest;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::Scan::next() {
  if (matcher_->empty()) return std::nullopt;
  for (;;) {
    const size_t begin = matcher_->find_first_byte(text_, searched_);
    if (begin == text_.size()) return std::nullopt;
    const int32_t index = matcher_->longest_at(text_, begin);
    if (index < 0) {
      searched_ = begin + 1;
      continue;
    }
    const Token& token = matcher_->tokens_[static_cast<size_t>(index)];
    const size_t end = begin + token.length;
    searched_ = end;
    if (token.flags.single_word && !is_alone(text_, begin, end)) continue;
    Match match{begin, end, token.flags.id};
    if (token.flags.lstrip) match.begin = white_space_begin(text_, begin);
    if (token.flags.rstrip) match.end = white_space_end(text_, end);
    return match;
  }
}

}  // namespace hexlm
