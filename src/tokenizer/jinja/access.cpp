#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "tokenizer/jinja/methods.hpp"
#include "tokenizer/jinja/object.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/represent.hpp"
#include "tokenizer/jinja/unicode.hpp"

namespace hexlm::jinja {
namespace {

std::string type_description(const Value& value) {
  return value.is_none() ? "None" : fmt::format("'{} object'", value.type_name());
}

Value missing(Budget& budget, const Value& value, const Value& key) {
  if (const Text* name = key.as_text()) {
    return Value::undefined(
        &budget, fmt::format("{} has no attribute {}", type_description(value), represent_name(name->bytes)));
  }
  return Value::undefined(&budget, fmt::format("{} has no element {}", type_description(value),
                                               represent_name(to_text(budget, key))));
}

Result<std::optional<Value>> python_attribute(Budget& budget, const Value& value, std::string_view name) {
  BoundMethod::Body method = nullptr;
  if (value.as_text() != nullptr) method = find_text_method(name);
  if (value.as_mapping() != nullptr) method = find_mapping_method(name);
  if (const Sequence* sequence = value.as_sequence()) {
    method = find_sequence_method(sequence->kind, name);
    constexpr std::string_view bounds[3] = {"start", "stop", "step"};
    for (size_t i = 0; i < 3 && sequence->kind == Sequence::Kind::range; ++i) {
      if (name == bounds[i]) return std::optional<Value>(Value::integer(sequence->range[i]));
    }
  }
  if (Object* object = value.as_object()) return object->attribute(budget, name);
  if (method == nullptr) return std::optional<Value>();
  return std::optional<Value>(make_object(budget, std::make_shared<BoundMethod>(budget, value, method)));
}

std::optional<Value> python_item(Budget& budget, const Value& value, const Value& key) {
  if (const Mapping* mapping = value.as_mapping()) {
    const Value* found = mapping->find(key);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  auto index = key.integral();
  if (!index) return std::nullopt;
  if (const Text* text = value.as_text()) {
    budget.spend_bytes(text->bytes.size());
    const auto length = static_cast<int64_t>(count_code_points(text->bytes));
    if (*index < 0) *index += length;
    if (*index < 0 || *index >= length) return std::nullopt;
    const size_t begin = byte_offset(text->bytes, static_cast<size_t>(*index));
    size_t end = begin;
    next_code_point(text->bytes, end);
    return make_text(&budget, text->bytes.substr(begin, end - begin), text->markup);
  }
  const Sequence* sequence = value.as_sequence();
  const bool indexed = sequence != nullptr &&
                       (sequence->kind == Sequence::Kind::list || sequence->kind == Sequence::Kind::tuple ||
                        sequence->kind == Sequence::Kind::range);
  if (!indexed) return std::nullopt;
  const auto length = static_cast<int64_t>(sequence->items.size());
  if (*index < 0) *index += length;
  if (*index < 0 || *index >= length) return std::nullopt;
  return sequence->items[static_cast<size_t>(*index)];
}

struct SliceRange {
  int64_t first = 0;
  int64_t step = 1;
  int64_t count = 0;
  /// The bound that the items stay short of.
  int64_t end = 0;
};

Result<std::optional<int64_t>> slice_bound(const Value& value) {
  if (value.is_none()) return std::optional<int64_t>();
  if (value.is_undefined()) return fail(ErrorCode::bad_input, value.reason());
  if (auto integer = value.integral()) return integer;
  return fail(ErrorCode::bad_input,
              fmt::format("a slice is made of integers or none, not of '{}'", value.type_name()));
}

/// Python's slice.indices for a sequence of `length` items.
Result<SliceRange> resolve_slice(int64_t length, const Value& start, const Value& stop, const Value& step) {
  HEXLM_ASSIGN(const auto given_start, slice_bound(start));
  HEXLM_ASSIGN(const auto given_stop, slice_bound(stop));
  HEXLM_ASSIGN(const auto given_step, slice_bound(step));
  SliceRange range;
  range.step = given_step.value_or(1);
  if (range.step == 0) return fail(ErrorCode::bad_input, "the step of a slice is zero");
  // -INT64_MAX steps as far as INT64_MIN would, and can be negated.
  range.step = std::max(range.step, -std::numeric_limits<int64_t>::max());
  const bool forward = range.step > 0;
  const int64_t lowest = forward ? 0 : -1;
  const int64_t highest = forward ? length : length - 1;
  const auto clamp = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound) return otherwise;
    return std::clamp(*bound < 0 ? *bound + length : *bound, lowest, highest);
  };
  range.first = clamp(given_start, forward ? lowest : highest);
  range.end = clamp(given_stop, forward ? highest : lowest);
  const int64_t distance = forward ? range.end - range.first : range.first - range.end;
  const int64_t stride = forward ? range.step : -range.step;
  range.count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  return range;
}

Result<Value> slice_text(Budget& budget, const Text& text, const Value& start, const Value& stop,
                         const Value& step) {
  budget.spend_bytes(text.bytes.size());
  const auto length = static_cast<int64_t>(count_code_points(text.bytes));
  HEXLM_ASSIGN(const SliceRange range, resolve_slice(length, start, stop, step));
  if (range.step == 1) {
    const size_t begin = byte_offset(text.bytes, static_cast<size_t>(range.first));
    const std::string_view rest = std::string_view(text.bytes).substr(begin);
    return make_text(&budget,
                     std::string(rest.substr(0, byte_offset(rest, static_cast<size_t>(range.count)))),
                     text.markup);
  }
  if (!budget.room(static_cast<uint64_t>(length) * sizeof(size_t))) return Value();
  std::vector<size_t> offsets;
  for (size_t position = 0; position < text.bytes.size(); next_code_point(text.bytes, position)) {
    offsets.push_back(position);
  }
  std::string result;
  for (int64_t i = 0; i < range.count; ++i) {
    const size_t begin = offsets[static_cast<size_t>(range.first + i * range.step)];
    size_t end = begin;
    next_code_point(text.bytes, end);
    result += text.bytes.substr(begin, end - begin);
  }
  return make_text(&budget, std::move(result), text.markup);
}

Result<Value> slice_sequence(Budget& budget, const Sequence& sequence, const Value& start, const Value& stop,
                             const Value& step) {
  HEXLM_ASSIGN(const SliceRange range,
               resolve_slice(static_cast<int64_t>(sequence.items.size()), start, stop, step));
  std::vector<Value> items;
  if (budget.spend(static_cast<uint64_t>(range.count)) &&
      budget.room(static_cast<uint64_t>(range.count) * sizeof(Value))) {
    items.reserve(static_cast<size_t>(range.count));
    for (int64_t i = 0; i < range.count; ++i) {
      items.push_back(sequence.items[static_cast<size_t>(range.first + i * range.step)]);
    }
  }
  Value result = make_sequence(&budget, std::move(items), sequence.kind);
  if (sequence.kind == Sequence::Kind::range) {
    // Only shown, never computed with, so that wrapping around does no harm.
    const auto at = [&](int64_t index) {
      return static_cast<int64_t>(static_cast<uint64_t>(sequence.range[0]) +
                                  static_cast<uint64_t>(index) * static_cast<uint64_t>(sequence.range[2]));
    };
    auto& bounds = result.as_sequence()->range;
    bounds[0] = at(range.first);
    bounds[1] = at(range.end);
    bounds[2] =
        static_cast<int64_t>(static_cast<uint64_t>(sequence.range[2]) * static_cast<uint64_t>(range.step));
  }
  return result;
}

}  // namespace

Result<Value> get_attribute(Budget& budget, const Value& value, std::string_view name) {
  if (value.is_undefined()) return fail(ErrorCode::bad_input, value.reason());
  if (is_hidden_method(value, name)) {
    return Value::undefined(
        &budget, fmt::format("the method '{}' of '{}' would change it, which templates may not", name,
                             value.type_name()));
  }
  HEXLM_ASSIGN(auto attribute, python_attribute(budget, value, name));
  if (attribute) return *std::move(attribute);
  const Value key = make_text(&budget, std::string(name));
  if (auto item = python_item(budget, value, key)) return *std::move(item);
  return missing(budget, value, key);
}

Result<Value> get_item(Budget& budget, const Value& value, const Value& key) {
  if (value.is_undefined()) return fail(ErrorCode::bad_input, value.reason());
  if (auto item = python_item(budget, value, key)) return *std::move(item);
  const Text* name = key.as_text();
  if (name != nullptr && !is_hidden_method(value, name->bytes)) {
    HEXLM_ASSIGN(auto attribute, python_attribute(budget, value, name->bytes));
    if (attribute) return *std::move(attribute);
  }
  return missing(budget, value, key);
}

Result<Value> get_slice(Budget& budget, const Value& value, const Value& start, const Value& stop,
                        const Value& step) {
  if (value.is_undefined()) return fail(ErrorCode::bad_input, value.reason());
  if (const Text* text = value.as_text()) return slice_text(budget, *text, start, stop, step);
  const Sequence* sequence = value.as_sequence();
  if (sequence != nullptr &&
      (sequence->kind == Sequence::Kind::list || sequence->kind == Sequence::Kind::tuple ||
       sequence->kind == Sequence::Kind::range)) {
    return slice_sequence(budget, *sequence, start, stop, step);
  }
  return fail(ErrorCode::bad_input, fmt::format("'{}' cannot be sliced", value.type_name()));
}

}  // namespace hexlm::jinja
