#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/jinja/value.hpp"

namespace hexlm::jinja {

// Python's operators on values. All stop early, with any result, when the budget is exhausted.

bool is_true(const Value& value);
/// `==`; never an error.
bool is_equal(Budget& budget, const Value& left, const Value& right);

enum class Order { less, equal, greater, none };
/// Order::none when a NaN takes part. Errors: bad_input for types that have no order.
Result<Order> compare(Budget& budget, const Value& left, const Value& right);
/// The indices of `keys` in ascending (or descending) order; equal keys stay in order.
Result<std::vector<size_t>> sorted_order(Budget& budget, const std::vector<Value>& keys, bool descending);

/// `item in container`.
Result<bool> contains(Budget& budget, const Value& container, const Value& item);
/// len(); none for what has no length.
std::optional<size_t> length_of(const Value& value);
bool is_iterable(const Value& value);
/// The items a loop over `value` visits; empties an iterator. Errors: bad_input for what is not iterable.
Result<std::vector<Value>> iterate(Budget& budget, const Value& value);

enum class Arithmetic { add, subtract, multiply, divide, floor_divide, modulo, power };
/// Errors: bad_input for operand types and division by zero; limit for integers beyond 64 bits.
Result<Value> calculate(Budget& budget, Arithmetic operation, const Value& left, const Value& right);
Result<Value> negate(const Value& value);

/// `value.name`: method or attribute first, then item, then undefined. Errors: bad_input on undefined values.
Result<Value> get_attribute(Budget& budget, const Value& value, std::string_view name);
/// `value[key]`: item first, then method or attribute, then undefined. Errors: as above.
Result<Value> get_item(Budget& budget, const Value& value, const Value& key);
/// `value[start:stop:step]`, each an integer or none. Errors: bad_input, also for what cannot be
/// sliced, unlike for items.
Result<Value> get_slice(Budget& budget, const Value& value, const Value& start, const Value& stop,
                        const Value& step);

/// A copy of `text` with & < > ' " as HTML entities, marked as markup.
Value escape_markup(Budget& budget, std::string_view text);

}  // namespace hexlm::jinja
