#include "tokenizer/jinja/operators.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "tokenizer/jinja/object.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

bool is_number(const Value& value) {
  return value.integral().has_value() || value.as_real() != nullptr || value.as_large() != nullptr;
}

/// Exact for every 64-bit integer: long double has a mantissa of at least 64 bits on all our targets.
long double as_long_double(const Value& value) {
  if (const double* real = value.as_real()) return *real;
  if (const uint64_t* large = value.as_large()) return static_cast<long double>(*large);
  return static_cast<long double>(value.integral().value_or(0));
}

Order order_of(long double left, long double right) {
  if (left < right) return Order::less;
  if (left > right) return Order::greater;
  return left == right ? Order::equal : Order::none;
}

bool is_array(Sequence::Kind kind) { return kind == Sequence::Kind::list || kind == Sequence::Kind::tuple; }

bool equal_sequences(Budget& budget, const Sequence& left, const Sequence& right) {
  if (&left == &right) return true;
  const bool comparable = is_array(left.kind) || left.kind == Sequence::Kind::range;
  if (left.kind != right.kind || !comparable || left.items.size() != right.items.size()) return false;
  for (size_t index = 0; index < left.items.size(); ++index) {
    if (!is_equal(budget, left.items[index], right.items[index])) return false;
  }
  return true;
}

bool equal_mappings(Budget& budget, const Mapping& left, const Mapping& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const Value* other = right.find(key);
    if (other == nullptr || !is_equal(budget, value, *other)) return false;
  }
  return true;
}

Result<Order> compare_sequences(Budget& budget, const Sequence& left, const Sequence& right) {
  const size_t shared = std::min(left.items.size(), right.items.size());
  for (size_t index = 0; index < shared; ++index) {
    if (!is_equal(budget, left.items[index], right.items[index])) {
      return compare(budget, left.items[index], right.items[index]);
    }
  }
  return order_of(static_cast<long double>(left.items.size()), static_cast<long double>(right.items.size()));
}

Error undefined_use(const Value& left, const Value& right) {
  return Error{ErrorCode::bad_input, left.is_undefined() ? left.reason() : right.reason(), {}};
}

}  // namespace

bool is_true(const Value& value) {
  if (const bool* boolean = value.as_boolean()) return *boolean;
  if (const int64_t* integer = value.as_integer()) return *integer != 0;
  if (const double* real = value.as_real()) return *real != 0;
  if (const Text* text = value.as_text()) return !text->bytes.empty();
  if (const Sequence* sequence = value.as_sequence()) {
    return sequence->kind == Sequence::Kind::iterator || !sequence->items.empty();
  }
  if (const Mapping* mapping = value.as_mapping()) return !mapping->entries.empty();
  return value.as_large() != nullptr || value.as_object() != nullptr;
}

bool is_equal(Budget& budget, const Value& left, const Value& right) {
  if (!budget.spend()) return false;
  if (is_number(left) && is_number(right)) {
    return order_of(as_long_double(left), as_long_double(right)) == Order::equal;
  }
  if (const Text* text = left.as_text()) {
    const Text* other = right.as_text();
    budget.spend_bytes(text->bytes.size());
    return other != nullptr && text->bytes == other->bytes;
  }
  if (left.as_sequence() != nullptr && right.as_sequence() != nullptr) {
    return equal_sequences(budget, *left.as_sequence(), *right.as_sequence());
  }
  if (left.as_mapping() != nullptr && right.as_mapping() != nullptr) {
    return equal_mappings(budget, *left.as_mapping(), *right.as_mapping());
  }
  return (left.is_undefined() && right.is_undefined()) || left.same_as(right);
}

Result<Order> compare(Budget& budget, const Value& left, const Value& right) {
  if (!budget.spend()) return Order::none;
  if (left.is_undefined() || right.is_undefined()) return tl::unexpected<Error>(undefined_use(left, right));
  if (is_number(left) && is_number(right)) return order_of(as_long_double(left), as_long_double(right));
  if (left.as_text() != nullptr && right.as_text() != nullptr) {
    // The order of UTF-8 bytes is the order of code points.
    budget.spend_bytes(left.as_text()->bytes.size());
    const int order = left.as_text()->bytes.compare(right.as_text()->bytes);
    return order < 0 ? Order::less : order > 0 ? Order::greater : Order::equal;
  }
  const Sequence* sequence = left.as_sequence();
  const Sequence* other = right.as_sequence();
  if (sequence != nullptr && other != nullptr && sequence->kind == other->kind && is_array(sequence->kind)) {
    return compare_sequences(budget, *sequence, *other);
  }
  return fail(ErrorCode::bad_input,
              fmt::format("'{}' and '{}' have no order", left.type_name(), right.type_name()));
}

Result<std::vector<size_t>> sorted_order(Budget& budget, const std::vector<Value>& keys, bool descending) {
  // A merge sort, since the standard ones may leave their range when an order is inconsistent, as NaN makes
  // it.
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<size_t> merged(keys.size());
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size());
      const size_t end = std::min(middle + width, order.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool from_right = left == middle;
        if (left < middle && right < end) {
          const Value& a = keys[order[left]];
          const Value& b = keys[order[right]];
          HEXLM_ASSIGN(const Order result, descending ? compare(budget, a, b) : compare(budget, b, a));
          from_right = result == Order::less;
        }
        merged[out] = order[from_right ? right++ : left++];
      }
    }
    std::swap(order, merged);
  }
  return order;
}

Result<bool> contains(Budget& budget, const Value& container, const Value& item) {
  if (const Text* text = container.as_text()) {
    const Text* part = item.as_text();
    if (part == nullptr) {
      return fail(ErrorCode::bad_input,
                  fmt::format("only a string can be 'in' a string, not '{}'", item.type_name()));
    }
    budget.spend_bytes(text->bytes.size());
    if (!Searcher::affordable(budget, part->bytes)) return false;
    return Searcher(part->bytes).find(text->bytes) != std::string_view::npos;
  }
  if (const Mapping* mapping = container.as_mapping()) {
    if (!hash_key(item)) {
      return fail(ErrorCode::bad_input, fmt::format("'{}' cannot be a key", item.type_name()));
    }
    return mapping->find(item) != nullptr;
  }
  if (Sequence* sequence = container.as_sequence()) {
    if (sequence->kind == Sequence::Kind::keys && !hash_key(item)) {
      return fail(ErrorCode::bad_input, fmt::format("'{}' cannot be a key", item.type_name()));
    }
    size_t index = 0;
    while (index < sequence->items.size() && !is_equal(budget, sequence->items[index], item)) ++index;
    const bool found = index < sequence->items.size();
    if (sequence->kind == Sequence::Kind::iterator) {
      // An iterator is used up until behind the item found.
      const auto used = static_cast<std::ptrdiff_t>(index + (found ? 1 : 0));
      sequence->items.erase(sequence->items.begin(), sequence->items.begin() + used);
    }
    return found;
  }
  if (container.is_undefined()) return false;
  return fail(ErrorCode::bad_input, fmt::format("nothing can be 'in' '{}'", container.type_name()));
}

std::optional<size_t> length_of(const Value& value) {
  if (const Text* text = value.as_text()) return count_code_points(text->bytes);
  if (const Mapping* mapping = value.as_mapping()) return mapping->entries.size();
  if (value.is_undefined()) return 0;
  const Sequence* sequence = value.as_sequence();
  if (sequence == nullptr || sequence->kind == Sequence::Kind::iterator) return std::nullopt;
  return sequence->items.size();
}

bool is_iterable(const Value& value) {
  return value.as_text() != nullptr || value.as_sequence() != nullptr || value.as_mapping() != nullptr ||
         value.is_undefined();
}

Result<std::vector<Value>> iterate(Budget& budget, const Value& value) {
  std::vector<Value> items;
  if (Sequence* sequence = value.as_sequence()) {
    budget.spend(sequence->items.size());
    if (sequence->kind == Sequence::Kind::iterator) return std::exchange(sequence->items, {});
    if (budget.room(sequence->items.size() * sizeof(Value))) items = sequence->items;
  } else if (const Mapping* mapping = value.as_mapping()) {
    budget.spend(mapping->entries.size());
    for (const auto& entry : mapping->entries) items.push_back(entry.first);
  } else if (const Text* text = value.as_text()) {
    // Each character becomes a text of its own.
    if (!budget.room(text->bytes.size() * (sizeof(Text) + sizeof(Value)))) return items;
    for (size_t position = 0; position < text->bytes.size() && budget.spend();) {
      const size_t begin = position;
      next_code_point(text->bytes, position);
      items.push_back(make_text(&budget, text->bytes.substr(begin, position - begin)));
    }
  } else if (!value.is_undefined()) {
    return fail(ErrorCode::bad_input, fmt::format("'{}' cannot be iterated", value.type_name()));
  }
  return items;
}

Value escape_markup(Budget& budget, std::string_view text) {
  std::string escaped;
  // The longest entity has five characters.
  if (!budget.room(text.size() * 5)) return make_text(&budget, {}, true);
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '"':
        escaped += "&#34;";
        break;
      default:
        escaped += c;
    }
  }
  return make_text(&budget, std::move(escaped), true);
}

}  // namespace hexlm::jinja
