#include "tokenizer/jinja/value.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "base/text.hpp"
#include "tokenizer/jinja/object.hpp"

namespace hexlm::jinja {
namespace {

// Above this many entries hashing beats comparing; messages and tool calls have fewer.
constexpr size_t linear_entries = 8;

std::string_view sequence_name(Sequence::Kind kind) {
  switch (kind) {
    case Sequence::Kind::list:
      return "list";
    case Sequence::Kind::tuple:
      return "tuple";
    case Sequence::Kind::range:
      return "range";
    case Sequence::Kind::iterator:
      return "generator";
    case Sequence::Kind::keys:
      return "dict_keys";
    case Sequence::Kind::values:
      return "dict_values";
    case Sequence::Kind::items:
      return "dict_items";
  }
  return "object";
}

// Tuples that share parts could otherwise make a key exponentially longer than they are.
constexpr size_t max_tuple_key_bytes = size_t{1} << 20;

/// Appends a text of which none is the beginning of another, so that parts can follow each other.
bool append_hash(const Value& key, std::string& hash) {
  if (hash.size() > max_tuple_key_bytes) return false;
  if (const Text* text = key.as_text()) {
    hash += fmt::format("s{}:{}", text->bytes.size(), text->bytes);
  } else if (key.is_none()) {
    hash += "z;";
  } else if (key.is_undefined()) {
    hash += "u;";
  } else if (auto integer = key.integral()) {
    hash += fmt::format("n{};", *integer);
  } else if (const uint64_t* large = key.as_large()) {
    hash += fmt::format("n{};", *large);
  } else if (const double* real = key.as_real()) {
    // Integral floats equal the integer; 2^63 is the first that int64 does not hold.
    const bool integral = std::trunc(*real) == *real && std::abs(*real) < 9223372036854775808.0;
    hash += integral ? fmt::format("n{};", static_cast<int64_t>(*real)) : fmt::format("f{};", *real);
  } else if (const Object* object = key.as_object()) {
    hash += fmt::format("o{};", fmt::ptr(object));
  } else {
    const Sequence* sequence = key.as_sequence();
    if (sequence == nullptr || sequence->kind != Sequence::Kind::tuple) return false;
    hash += 't';
    for (const Value& item : sequence->items) {
      if (!append_hash(item, hash)) return false;
    }
    hash += ')';
  }
  return true;
}

uint64_t mapping_bytes(const Mapping::Entries& entries) {
  uint64_t bytes = sizeof(Mapping) + entries.size() * 2 * sizeof(Value);
  if (entries.size() <= linear_entries) return bytes;
  // The index copies every key into a node of its own.
  for (const auto& [key, value] : entries) {
    const Text* text = key.as_text();
    bytes += 96 + (text == nullptr ? 0 : text->bytes.size());
  }
  return bytes;
}

Result<Value> from_json(const nlohmann::ordered_json& json, int depth) {
  if (depth > max_value_depth) {
    return fail(ErrorCode::limit, fmt::format("a value nests deeper than {} levels", max_value_depth));
  }
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned:
      return Value::natural(json.get<uint64_t>());
    case nlohmann::ordered_json::value_t::number_float:
      return Value::real(json.get<double>());
    case nlohmann::ordered_json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      if (!is_valid_utf8(text)) return fail(ErrorCode::bad_input, "a text is not valid UTF-8");
      return make_text(nullptr, text);
    }
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) {
        HEXLM_ASSIGN(Value value, from_json(item, depth + 1));
        items.push_back(std::move(value));
      }
      return make_sequence(nullptr, std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      Mapping::Entries entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        if (!is_valid_utf8(key)) return fail(ErrorCode::bad_input, "a key is not valid UTF-8");
        HEXLM_ASSIGN(Value value, from_json(item, depth + 1));
        entries.emplace_back(make_text(nullptr, key), std::move(value));
      }
      return make_mapping(nullptr, std::move(entries));
    }
    default:
      return Value();
  }
}

}  // namespace

Value Value::undefined(Budget* budget, std::string reason) {
  return Value(Undefined{std::make_shared<const Undefined::Reason>(budget, std::move(reason))});
}

Value Value::natural(uint64_t value) {
  return value > static_cast<uint64_t>(INT64_MAX) ? Value(value) : Value(static_cast<int64_t>(value));
}

const std::string& Value::reason() const {
  static const std::string unknown = "the value is undefined";
  const auto* value = std::get_if<Undefined>(&storage_);
  return value != nullptr && value->reason != nullptr ? value->reason->text : unknown;
}

std::optional<int64_t> Value::integral() const {
  if (const bool* boolean = as_boolean()) return *boolean ? 1 : 0;
  if (const int64_t* integer = as_integer()) return *integer;
  return std::nullopt;
}

std::string_view Value::type_name() const {
  if (is_none()) return "NoneType";
  if (is_undefined()) return "Undefined";
  if (is_boolean()) return "bool";
  if (as_integer() != nullptr || as_large() != nullptr) return "int";
  if (as_real() != nullptr) return "float";
  if (const Text* text = as_text()) return text->markup ? "Markup" : "str";
  if (const Sequence* sequence = as_sequence()) return sequence_name(sequence->kind);
  if (as_mapping() != nullptr) return "dict";
  return as_object()->type_name();
}

int Value::depth() const {
  if (const Sequence* sequence = as_sequence()) return sequence->depth;
  if (const Mapping* mapping = as_mapping()) return mapping->depth;
  if (const Object* object = as_object()) return object->depth();
  return 0;
}

bool Value::same_as(const Value& other) const {
  if (storage_.index() != other.storage_.index()) return false;
  if (const bool* boolean = as_boolean()) return *boolean == *other.as_boolean();
  if (const int64_t* integer = as_integer()) return *integer == *other.as_integer();
  if (const uint64_t* large = as_large()) return *large == *other.as_large();
  if (const double* real = as_real()) return *real == *other.as_real();
  if (const Text* text = as_text()) return text == other.as_text();
  if (const Sequence* sequence = as_sequence()) return sequence == other.as_sequence();
  if (const Mapping* mapping = as_mapping()) return mapping == other.as_mapping();
  if (const Object* object = as_object()) return object == other.as_object();
  return is_none();
}

std::optional<std::string> hash_key(const Value& key) {
  if (const Text* text = key.as_text()) return fmt::format("s{}", text->bytes);
  std::string hash;
  if (!append_hash(key, hash)) return std::nullopt;
  return hash;
}

Mapping::Mapping(Budget* budget, Entries values, int levels)
    : depth(levels), hold(budget, mapping_bytes(values)) {
  entries.reserve(values.size());
  const bool indexed = values.size() > linear_entries;
  for (auto& entry : values) {
    if (!indexed) {
      if (const Value* known = find(entry.first)) {
        const_cast<Value&>(*known) = std::move(entry.second);
        continue;
      }
    } else {
      const auto [position, added] = index_.emplace(hash_key(entry.first).value_or(""), entries.size());
      if (!added) {
        entries[position->second].second = std::move(entry.second);
        continue;
      }
    }
    entries.push_back(std::move(entry));
  }
}

const Value* Mapping::find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(fmt::format("s{}", key));
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    const Text* text = name.as_text();
    if (text != nullptr && text->bytes == key) return &value;
  }
  return nullptr;
}

const Value* Mapping::find(const Value& key) const {
  if (const Text* text = key.as_text()) return find(text->bytes);
  const auto hash = hash_key(key);
  if (!hash) return nullptr;
  if (!index_.empty()) {
    const auto found = index_.find(*hash);
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [name, value] : entries) {
    if (hash_key(name) == hash) return &value;
  }
  return nullptr;
}

Value make_text(Budget* budget, std::string text, bool markup) {
  return Value::text(std::make_shared<const Text>(budget, std::move(text), markup));
}

Value make_sequence(Budget* budget, std::vector<Value> items, Sequence::Kind kind) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (budget != nullptr && depth + 1 > max_value_depth) {
    budget->exhaust("the template nests values deeper than 320 levels");
    items.clear();
  }
  return Value::sequence(std::make_shared<Sequence>(budget, kind, std::move(items), depth + 1));
}

Value make_mapping(Budget* budget, Mapping::Entries entries) {
  int depth = 0;
  for (const auto& [key, value] : entries) depth = std::max({depth, key.depth(), value.depth()});
  if (budget != nullptr && depth + 1 > max_value_depth) {
    budget->exhaust("the template nests values deeper than 320 levels");
    entries.clear();
  }
  return Value::mapping(std::make_shared<const Mapping>(budget, std::move(entries), depth + 1));
}

Result<Value> from_json(const nlohmann::ordered_json& json) { return from_json(json, 0); }

}  // namespace hexlm::jinja
