#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/jinja/budget.hpp"

namespace hexlm::jinja {

struct Text;
struct Sequence;
struct Mapping;
class Object;

struct None {};
/// The value of what is missing: false, empty, printed as nothing; any other use is an error with `reason`.
struct Undefined {
  struct Reason {
    Reason(Budget* budget, std::string value)
        : text(std::move(value)), hold(budget, sizeof(Reason) + text.capacity()) {}
    std::string text;
    Hold hold;
  };
  std::shared_ptr<const Reason> reason;
};

/// A value with Python's meaning. Texts and containers are shared and immutable, except where Python lets a
/// sandboxed template change them: namespaces, `list.pop`, `list.clear`, and iterators, which are used up.
class Value {
 public:
  Value() : storage_(None{}) {}

  /// `budget` as for make_text.
  static Value undefined(Budget* budget, std::string reason);
  static Value boolean(bool value) { return Value(value); }
  static Value integer(int64_t value) { return Value(value); }
  /// Integers above int64 keep their digits, but take no part in arithmetic.
  static Value natural(uint64_t value);
  static Value real(double value) { return Value(value); }
  static Value object(std::shared_ptr<Object> value) { return Value(std::move(value)); }
  static Value text(std::shared_ptr<const Text> value) { return Value(std::move(value)); }
  static Value sequence(std::shared_ptr<Sequence> value) { return Value(std::move(value)); }
  static Value mapping(std::shared_ptr<const Mapping> value) { return Value(std::move(value)); }

  bool is_none() const { return std::holds_alternative<None>(storage_); }
  bool is_undefined() const { return std::holds_alternative<Undefined>(storage_); }
  bool is_boolean() const { return std::holds_alternative<bool>(storage_); }
  const bool* as_boolean() const { return std::get_if<bool>(&storage_); }
  const int64_t* as_integer() const { return std::get_if<int64_t>(&storage_); }
  const uint64_t* as_large() const { return std::get_if<uint64_t>(&storage_); }
  const double* as_real() const { return std::get_if<double>(&storage_); }
  const Text* as_text() const { return get<std::shared_ptr<const Text>>(); }
  Sequence* as_sequence() const { return get<std::shared_ptr<Sequence>>(); }
  const Mapping* as_mapping() const { return get<std::shared_ptr<const Mapping>>(); }
  Object* as_object() const { return get<std::shared_ptr<Object>>(); }
  /// Of an undefined value: why it is undefined.
  const std::string& reason() const;

  /// Booleans count as 0 and 1, as in Python; null for anything else but integers.
  std::optional<int64_t> integral() const;
  /// Python's class name: `str`, `int`, `NoneType`, …
  std::string_view type_name() const;
  /// The levels of containers in this value; 0 for scalars and texts.
  int depth() const;
  /// Python's `is`.
  bool same_as(const Value& other) const;

 private:
  using Storage =
      std::variant<None, Undefined, bool, int64_t, uint64_t, double, std::shared_ptr<const Text>,
                   std::shared_ptr<Sequence>, std::shared_ptr<const Mapping>, std::shared_ptr<Object>>;
  template <class T>
  explicit Value(T value) : storage_(std::move(value)) {}
  template <class Pointer>
  typename Pointer::element_type* get() const {
    const auto* pointer = std::get_if<Pointer>(&storage_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Storage storage_;
};

/// Well-formed UTF-8. `markup` marks what `safe` or `escape` returned: joined to other text with `+`, it
/// escapes that text, even though templates render without autoescaping.
struct Text {
  Text(Budget* budget, std::string value, bool is_markup)
      : bytes(std::move(value)), markup(is_markup), hold(budget, sizeof(Text) + bytes.capacity()) {}
  std::string bytes;
  bool markup;
  Hold hold;
};

/// What has items in order. Iterators (what `map`, `select`, `items`, `reverse` return) are evaluated at
/// once, but are used up by the first iteration and have no length, as in Python.
struct Sequence {
  enum class Kind { list, tuple, range, iterator, keys, values, items };
  Sequence(Budget* budget, Kind sequence_kind, std::vector<Value> values, int levels)
      : kind(sequence_kind),
        items(std::move(values)),
        depth(levels),
        hold(budget, sizeof(Sequence) + items.capacity() * sizeof(Value)) {}
  Kind kind;
  std::vector<Value> items;
  int depth;
  /// Of a range: start, stop and step.
  int64_t range[3] = {0, 0, 1};
  Hold hold;
};

/// A dict in order of insertion.
struct Mapping {
  using Entries = std::vector<std::pair<Value, Value>>;
  Mapping(Budget* budget, Entries values, int levels);
  const Value* find(std::string_view key) const;
  /// Null as well for a key that cannot be hashed.
  const Value* find(const Value& key) const;

  Entries entries;
  int depth;
  Hold hold;

 private:
  /// Filled for more entries than a linear search is good for.
  std::unordered_map<std::string, size_t> index_;
};

/// A text that equal keys share (1, 1.0 and true are equal in Python); none for what cannot be hashed.
std::optional<std::string> hash_key(const Value& key);

/// `budget` may be null for values that outlive renderings; when it is not, nesting above the limit exhausts
/// it and yields an empty container.
Value make_text(Budget* budget, std::string text, bool markup = false);
Value make_sequence(Budget* budget, std::vector<Value> items, Sequence::Kind kind = Sequence::Kind::list);
/// Later entries replace the value of earlier ones with the same key. Every key must have a hash_key.
Value make_mapping(Budget* budget, Mapping::Entries entries);

/// Errors: bad_input for text that is not UTF-8; limit for nesting above `max_value_depth`.
Result<Value> from_json(const nlohmann::ordered_json& json);

}  // namespace hexlm::jinja
