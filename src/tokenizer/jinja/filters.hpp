#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/jinja/registry.hpp"

namespace hexlm::jinja {

std::span<const Filter> text_filters();
std::span<const Filter> sequence_filters();
std::span<const Filter> selection_filters();
std::span<const Filter> number_filters();
std::span<const Test> all_tests();

/// The `attribute` of a filter: names and indices separated by points, looked up one after the other.
class AttributePath {
 public:
  /// None gives the item itself. Errors: bad_input unless `attribute` is a string, an integer or none.
  static Result<AttributePath> parse(const Value& attribute);
  static AttributePath parse(std::string_view attribute);
  /// `otherwise` replaces an undefined value at each step; null keeps it.
  Result<Value> get(Budget& budget, Value item, const Value* otherwise = nullptr) const;

 private:
  std::vector<Value> parts_;
};

/// Lower case if it is a text: what sorting compares unless asked to respect case.
Value ignore_case(Budget& budget, const Value& value);

}  // namespace hexlm::jinja
