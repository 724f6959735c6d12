#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <unordered_set>

#include "tokenizer/jinja/arguments.hpp"
#include "tokenizer/jinja/filters.hpp"
#include "tokenizer/jinja/interpreter.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/represent.hpp"
#include "tokenizer/jinja/text_operations.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

tl::unexpected<Error> unsuitable(std::string_view filter, const Value& input) {
  return fail(ErrorCode::bad_input,
              input.is_undefined() ? input.reason()
                                   : fmt::format("{} does not apply to '{}'", filter, input.type_name()));
}

bool is_iterator(const Value& value) {
  return value.as_sequence() != nullptr && value.as_sequence()->kind == Sequence::Kind::iterator;
}

Result<Value> length(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("length", arguments, {}));
  const auto size = length_of(input);
  if (!size) return unsuitable("length", input);
  if (input.as_text() != nullptr) interpreter.budget().spend_bytes(*size);
  return Value::integer(static_cast<int64_t>(*size));
}

Result<Value> first(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("first", arguments, {}));
  if (is_iterator(input)) {
    auto& items = input.as_sequence()->items;
    if (items.empty())
      return Value::undefined(&interpreter.budget(), "the sequence was empty and has no first item");
    // The iterator goes on behind this item.
    interpreter.budget().spend(items.size());
    Value item = std::move(items.front());
    items.erase(items.begin());
    return item;
  }
  HEXLM_ASSIGN(std::vector<Value> items, iterate(interpreter.budget(), input));
  if (items.empty())
    return Value::undefined(&interpreter.budget(), "the sequence was empty and has no first item");
  return std::move(items.front());
}

Result<Value> last(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("last", arguments, {}));
  if (is_iterator(input)) return unsuitable("last", input);
  HEXLM_ASSIGN(std::vector<Value> items, iterate(interpreter.budget(), input));
  if (items.empty())
    return Value::undefined(&interpreter.budget(), "the sequence was empty and has no last item");
  return std::move(items.back());
}

Result<Value> list(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("list", arguments, {}));
  HEXLM_ASSIGN(std::vector<Value> items, iterate(interpreter.budget(), input));
  return make_sequence(&interpreter.budget(), std::move(items));
}

Result<Value> items(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("items", arguments, {}));
  Budget& budget = interpreter.budget();
  std::vector<Value> pairs;
  if (const Mapping* mapping = input.as_mapping()) {
    for (const auto& [key, value] : mapping->entries) {
      if (!budget.spend()) break;
      pairs.push_back(make_sequence(&budget, {key, value}, Sequence::Kind::tuple));
    }
  } else if (!input.is_undefined()) {
    return fail(ErrorCode::bad_input, fmt::format("items expects a dict, not '{}'", input.type_name()));
  }
  return make_sequence(&budget, std::move(pairs), Sequence::Kind::iterator);
}

Result<Value> join(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("join", arguments, {"d", "attribute"}));
  Budget& budget = interpreter.budget();
  HEXLM_ASSIGN(const AttributePath path, AttributePath::parse(bound[1] == nullptr ? Value() : *bound[1]));
  HEXLM_ASSIGN(std::vector<Value> values, iterate(budget, input));
  std::vector<std::string> parts;
  uint64_t total = 0;
  for (Value& item : values) {
    HEXLM_ASSIGN(const Value value, path.get(budget, std::move(item)));
    parts.push_back(to_text(budget, value));
    total += parts.back().size() + sizeof(std::string);
    if (!budget.room(total) || !budget.spend()) break;
  }
  const std::string separator = bound[0] == nullptr ? "" : to_text(budget, *bound[0]);
  return make_text(&budget, join_texts(budget, parts, separator));
}

Result<Value> reverse(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("reverse", arguments, {}));
  Budget& budget = interpreter.budget();
  if (input.as_text() != nullptr) return get_slice(budget, input, Value(), Value(), Value::integer(-1));
  const bool consumed = is_iterator(input);
  HEXLM_ASSIGN(std::vector<Value> values, iterate(budget, input));
  std::reverse(values.begin(), values.end());
  return make_sequence(&budget, std::move(values),
                       consumed ? Sequence::Kind::list : Sequence::Kind::iterator);
}

/// Of `sort`: the value at each of the comma-separated attributes.
Result<std::vector<Value>> sort_keys(Budget& budget, const std::vector<Value>& values, const Value* attribute,
                                     bool case_sensitive) {
  std::vector<AttributePath> paths;
  const Text* names = attribute == nullptr ? nullptr : attribute->as_text();
  if (names != nullptr) {
    std::string_view rest = names->bytes;
    for (size_t comma = 0; comma != std::string_view::npos;
         rest.remove_prefix(std::min(comma + 1, rest.size()))) {
      comma = rest.find(',');
      paths.push_back(AttributePath::parse(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
    }
  } else {
    HEXLM_ASSIGN(AttributePath path, AttributePath::parse(attribute == nullptr ? Value() : *attribute));
    paths.push_back(std::move(path));
  }
  std::vector<Value> keys;
  for (const Value& value : values) {
    std::vector<Value> parts;
    for (const AttributePath& path : paths) {
      HEXLM_ASSIGN(Value part, path.get(budget, value));
      parts.push_back(case_sensitive ? std::move(part) : ignore_case(budget, part));
    }
    // A list even for one key: in lists, undefined values compare as equal instead of failing.
    keys.push_back(make_sequence(&budget, std::move(parts)));
  }
  return keys;
}

Result<Value> sort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  Budget& budget = interpreter.budget();
  HEXLM_ASSIGN(const std::vector<Value> values, iterate(budget, input));
  HEXLM_ASSIGN(const auto keys, sort_keys(budget, values, bound[2], bound.truth(1, false)));
  HEXLM_ASSIGN(const auto order, sorted_order(budget, keys, bound.truth(0, false)));
  std::vector<Value> sorted;
  sorted.reserve(order.size());
  for (const size_t index : order) sorted.push_back(values[index]);
  return make_sequence(&budget, std::move(sorted));
}

Result<Value> dictsort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  const Mapping* mapping = input.as_mapping();
  if (mapping == nullptr) return unsuitable("dictsort", input);
  HEXLM_ASSIGN(const Text* by, bound.text(1));
  if (by != nullptr && by->bytes != "key" && by->bytes != "value") {
    return fail(ErrorCode::bad_input, "dictsort sorts by 'key' or 'value'");
  }
  const bool by_value = by != nullptr && by->bytes == "value";
  Budget& budget = interpreter.budget();
  std::vector<Value> keys;
  for (const auto& [key, value] : mapping->entries) {
    const Value& sorted_by = by_value ? value : key;
    keys.push_back(bound.truth(0, false) ? sorted_by : ignore_case(budget, sorted_by));
  }
  HEXLM_ASSIGN(const auto order, sorted_order(budget, keys, bound.truth(2, false)));
  std::vector<Value> pairs;
  for (const size_t index : order) {
    const auto& [key, value] = mapping->entries[index];
    pairs.push_back(make_sequence(&budget, {key, value}, Sequence::Kind::tuple));
  }
  return make_sequence(&budget, std::move(pairs));
}

Result<Value> unique(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("unique", arguments, {"case_sensitive", "attribute"}));
  Budget& budget = interpreter.budget();
  HEXLM_ASSIGN(const AttributePath path, AttributePath::parse(bound[1] == nullptr ? Value() : *bound[1]));
  HEXLM_ASSIGN(std::vector<Value> values, iterate(budget, input));
  std::unordered_set<std::string> seen;
  std::vector<Value> kept;
  uint64_t total = 0;
  for (Value& value : values) {
    HEXLM_ASSIGN(Value key, path.get(budget, value));
    if (!bound.truth(0, false)) key = ignore_case(budget, key);
    auto hash = hash_key(key);
    if (!hash) return fail(ErrorCode::bad_input, fmt::format("unique cannot compare '{}'", key.type_name()));
    total += hash->size();
    if (!budget.room(total) || !budget.spend_bytes(hash->size())) break;
    if (seen.insert(*std::move(hash)).second) kept.push_back(std::move(value));
  }
  return make_sequence(&budget, std::move(kept), Sequence::Kind::iterator);
}

template <bool Greatest>
Result<Value> extreme(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound,
               Bound::bind(Greatest ? "max" : "min", arguments, {"case_sensitive", "attribute"}));
  Budget& budget = interpreter.budget();
  HEXLM_ASSIGN(const AttributePath path, AttributePath::parse(bound[1] == nullptr ? Value() : *bound[1]));
  HEXLM_ASSIGN(const std::vector<Value> values, iterate(budget, input));
  if (values.empty())
    return Value::undefined(&interpreter.budget(), "the sequence was empty and has no such item");
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < values.size(); ++i) {
    HEXLM_ASSIGN(Value key, path.get(budget, values[i]));
    if (!bound.truth(0, false)) key = ignore_case(budget, key);
    if (i > 0) {
      HEXLM_ASSIGN(const Order order, compare(budget, key, best_key));
      if (order != (Greatest ? Order::greater : Order::less)) continue;
    }
    best = i;
    best_key = std::move(key);
  }
  return values[best];
}

Result<Value> sum(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("sum", arguments, {"attribute", "start"}));
  Budget& budget = interpreter.budget();
  HEXLM_ASSIGN(const AttributePath path, AttributePath::parse(bound[0] == nullptr ? Value() : *bound[0]));
  HEXLM_ASSIGN(std::vector<Value> values, iterate(budget, input));
  Value total = bound[1] == nullptr ? Value::integer(0) : *bound[1];
  if (total.as_text() != nullptr) return fail(ErrorCode::bad_input, "sum does not add strings; use join");
  for (Value& item : values) {
    HEXLM_ASSIGN(const Value value, path.get(budget, std::move(item)));
    HEXLM_ASSIGN(total, calculate(budget, Arithmetic::add, total, value));
  }
  return total;
}

constexpr std::array filters = {
    Filter{"count", length},      Filter{"dictsort", dictsort},
    Filter{"first", first},       Filter{"items", items},
    Filter{"join", join},         Filter{"last", last},
    Filter{"length", length},     Filter{"list", list},
    Filter{"max", extreme<true>}, Filter{"min", extreme<false>},
    Filter{"reverse", reverse},   Filter{"sort", sort},
    Filter{"sum", sum},           Filter{"unique", unique},
};

}  // namespace

std::span<const Filter> sequence_filters() { return filters; }

}  // namespace hexlm::jinja
