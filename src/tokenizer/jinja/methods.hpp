#pragma once

#include <string_view>

#include "tokenizer/jinja/object.hpp"

namespace hexlm::jinja {

// Methods of Python's types, by name; null for names that are none, or that the subset leaves out.

BoundMethod::Body find_text_method(std::string_view name);
BoundMethod::Body find_sequence_method(Sequence::Kind kind, std::string_view name);
BoundMethod::Body find_mapping_method(std::string_view name);
/// Methods that would change a list or dict, which the sandbox hides from templates.
bool is_hidden_method(const Value& value, std::string_view name);

}  // namespace hexlm::jinja
