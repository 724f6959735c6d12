#include "tokenizer/jinja/text_operations.hpp"

#include <algorithm>
#include <limits>

#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

/// Replacing the empty text puts `new_text` around every code point.
std::string surround(Budget& budget, std::string_view text, std::string_view new_text, int64_t count) {
  std::string result;
  size_t position = 0;
  for (; count > 0; --count) {
    if (!budget.room(result.size() + new_text.size()) || !budget.spend_bytes(new_text.size())) break;
    result += new_text;
    if (position >= text.size()) return result;
    const size_t begin = position;
    next_code_point(text, position);
    result += text.substr(begin, position - begin);
  }
  return result += text.substr(position);
}

/// Collects the parts of a split.
class Parts {
 public:
  Parts(Budget& budget, bool markup) : budget_(budget), markup_(markup) {}
  /// False when the budget is exhausted.
  bool add(std::string_view part) {
    items_.push_back(make_text(&budget_, std::string(part), markup_));
    return budget_.spend();
  }
  uint64_t size() const { return items_.size(); }
  void reverse() { std::reverse(items_.begin(), items_.end()); }
  Value take() { return make_sequence(&budget_, std::move(items_)); }

 private:
  Budget& budget_;
  bool markup_;
  std::vector<Value> items_;
};

void split_at_spaces(std::string_view text, uint64_t limit, Parts& parts) {
  std::string_view rest = strip(text, true, false);
  while (!rest.empty()) {
    size_t end = 0;
    for (size_t next = 0; end < rest.size() && !is_space(next_code_point(rest, next)); end = next) {
    }
    if (parts.size() == limit) {
      parts.add(rest);
      return;
    }
    if (!parts.add(rest.substr(0, end))) return;
    rest = strip(rest.substr(end), true, false);
  }
}

/// Adds the parts in order from the right.
void split_at_spaces_from_right(std::string_view text, uint64_t limit, Parts& parts) {
  std::string_view rest = strip(text, false, true);
  while (!rest.empty()) {
    if (parts.size() == limit) {
      parts.add(rest);
      return;
    }
    size_t begin = rest.size();
    while (begin > 0) {
      size_t start = begin - 1;
      while (start > 0 && (static_cast<unsigned char>(rest[start]) & 0xC0) == 0x80) --start;
      size_t next = start;
      if (is_space(next_code_point(rest, next))) break;
      begin = start;
    }
    if (!parts.add(rest.substr(begin))) return;
    rest = strip(rest.substr(0, begin), false, true);
  }
}

template <class Add>
void split_at(std::string_view text, std::string_view separator, uint64_t limit, Add add) {
  const Searcher searcher(separator);
  size_t begin = 0;
  for (uint64_t splits = 0; splits < limit; ++splits) {
    const size_t found = searcher.find(text, begin);
    if (found == std::string_view::npos) break;
    if (!add(text.substr(begin, found - begin))) return;
    begin = found + separator.size();
  }
  add(text.substr(begin));
}

/// Adds the parts in order from the right. Reversing both texts keeps the search linear.
void split_at_from_right(std::string_view text, std::string_view separator, uint64_t limit, Parts& parts) {
  const std::string reversed(text.rbegin(), text.rend());
  const std::string reversed_separator(separator.rbegin(), separator.rend());
  split_at(reversed, reversed_separator, limit, [&](std::string_view part) {
    const auto from_end = static_cast<size_t>(part.data() - reversed.data()) + part.size();
    return parts.add(text.substr(text.size() - from_end, part.size()));
  });
}

}  // namespace

std::string replace_text(Budget& budget, std::string_view text, std::string_view old_text,
                         std::string_view new_text, int64_t count) {
  budget.spend_bytes(text.size());
  if (!Searcher::affordable(budget, old_text)) return {};
  if (count < 0) count = std::numeric_limits<int64_t>::max();
  if (old_text.empty()) return surround(budget, text, new_text, count);
  const Searcher searcher(old_text);
  std::string result;
  size_t begin = 0;
  for (; count > 0; --count) {
    const size_t found = searcher.find(text, begin);
    if (found == std::string_view::npos) break;
    if (!budget.room(result.size() + new_text.size() + found - begin) || !budget.spend_bytes(new_text.size()))
      break;
    result += text.substr(begin, found - begin);
    result += new_text;
    begin = found + old_text.size();
  }
  return result += text.substr(begin);
}

Value split_text(Budget& budget, std::string_view text, const std::string* separator, int64_t limit,
                 bool from_right, bool markup) {
  budget.spend_bytes(text.size());
  const uint64_t splits = limit < 0 ? std::numeric_limits<uint64_t>::max() : static_cast<uint64_t>(limit);
  Parts parts(budget, markup);
  if (separator == nullptr) {
    from_right ? split_at_spaces_from_right(text, splits, parts) : split_at_spaces(text, splits, parts);
  } else if (Searcher::affordable(budget, *separator) && budget.room(text.size())) {
    if (from_right) {
      split_at_from_right(text, *separator, splits, parts);
    } else {
      split_at(text, *separator, splits, [&](std::string_view part) { return parts.add(part); });
    }
  }
  if (from_right) parts.reverse();
  return parts.take();
}

std::string join_texts(Budget& budget, const std::vector<std::string>& parts, std::string_view separator) {
  std::string result;
  for (size_t i = 0; i < parts.size(); ++i) {
    const uint64_t added = parts[i].size() + separator.size();
    if (!budget.room(result.size() + added) || !budget.spend_bytes(added)) break;
    if (i > 0) result += separator;
    result += parts[i];
  }
  return result;
}

std::string repeat_text(std::string_view text, int64_t count) {
  std::string result;
  for (int64_t i = 0; i < count; ++i) result += text;
  return result;
}

}  // namespace hexlm::jinja
