#include <algorithm>
#include <fmt/format.h>

#include "tokenizer/jinja/arguments.hpp"
#include "tokenizer/jinja/methods.hpp"
#include "tokenizer/jinja/operators.hpp"

namespace hexlm::jinja {
namespace {

Result<Value> mapping_get(Budget&, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("get", arguments, {"key", "default"}, 1));
  if (!hash_key(*bound[0])) {
    return fail(ErrorCode::bad_input, fmt::format("'{}' cannot be a key", bound[0]->type_name()));
  }
  if (const Value* found = self.as_mapping()->find(*bound[0])) return *found;
  return bound[1] == nullptr ? Value() : *bound[1];
}

template <Sequence::Kind Kind>
Result<Value> mapping_view(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("the dict method", arguments, {}));
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_mapping()->entries) {
    if (!budget.spend()) break;
    if (Kind == Sequence::Kind::keys) items.push_back(key);
    if (Kind == Sequence::Kind::values) items.push_back(value);
    if (Kind == Sequence::Kind::items)
      items.push_back(make_sequence(&budget, {key, value}, Sequence::Kind::tuple));
  }
  return make_sequence(&budget, std::move(items), Kind);
}

Result<Value> mapping_copy(Budget&, const Value& self, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("copy", arguments, {}));
  return self;
}

Result<Value> sequence_count(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("count", arguments, {"value"}, 1));
  int64_t total = 0;
  for (const Value& item : self.as_sequence()->items) total += is_equal(budget, item, *bound[0]) ? 1 : 0;
  return Value::integer(total);
}

Result<Value> sequence_index(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("index", arguments, {"value"}, 1));
  const auto& items = self.as_sequence()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (is_equal(budget, items[i], *bound[0])) return Value::integer(static_cast<int64_t>(i));
  }
  return fail(ErrorCode::bad_input, "index did not find the value");
}

Result<Value> list_copy(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("copy", arguments, {}));
  const auto& items = self.as_sequence()->items;
  if (!budget.room(items.size() * sizeof(Value)) || !budget.spend(items.size())) return Value();
  return make_sequence(&budget, items);
}

Result<Value> list_pop(Budget& budget, const Value& self, const Arguments& arguments) {
  HEXLM_ASSIGN(const Bound bound, Bound::bind("pop", arguments, {"index"}));
  HEXLM_ASSIGN(int64_t index, bound.integer(0, -1));
  auto& items = self.as_sequence()->items;
  const auto size = static_cast<int64_t>(items.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) {
    return fail(ErrorCode::bad_input, fmt::format("pop of item {} from a list of {}", index, size));
  }
  budget.spend(static_cast<uint64_t>(size - index));
  // A copy: g++ 12 takes a moved-from variant for uninitialised here.
  Value popped = items[static_cast<size_t>(index)];
  items.erase(items.begin() + index);
  return popped;
}

Result<Value> list_clear(Budget&, const Value& self, const Arguments& arguments) {
  HEXLM_TRY(Bound::bind("clear", arguments, {}));
  self.as_sequence()->items.clear();
  return Value();
}

}  // namespace

BoundMethod::Body find_mapping_method(std::string_view name) {
  if (name == "get") return mapping_get;
  if (name == "items") return mapping_view<Sequence::Kind::items>;
  if (name == "keys") return mapping_view<Sequence::Kind::keys>;
  if (name == "values") return mapping_view<Sequence::Kind::values>;
  if (name == "copy") return mapping_copy;
  return nullptr;
}

BoundMethod::Body find_sequence_method(Sequence::Kind kind, std::string_view name) {
  const bool list = kind == Sequence::Kind::list;
  if (!list && kind != Sequence::Kind::tuple && kind != Sequence::Kind::range) return nullptr;
  if (name == "count") return sequence_count;
  if (name == "index") return sequence_index;
  // The sandbox lets templates shrink lists, though not grow them.
  if (list && name == "copy") return list_copy;
  if (list && name == "pop") return list_pop;
  if (list && name == "clear") return list_clear;
  return nullptr;
}

bool is_hidden_method(const Value& value, std::string_view name) {
  if (value.as_mapping() != nullptr) {
    return name == "clear" || name == "pop" || name == "popitem" || name == "setdefault" || name == "update";
  }
  const Sequence* sequence = value.as_sequence();
  if (sequence == nullptr || sequence->kind != Sequence::Kind::list) return false;
  return name == "append" || name == "extend" || name == "insert" || name == "remove" || name == "reverse" ||
         name == "sort";
}

}  // namespace hexlm::jinja
