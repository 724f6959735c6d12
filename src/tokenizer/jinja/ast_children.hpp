#pragma once

#include <utility>
#include <vector>

#include "tokenizer/jinja/ast.hpp"

namespace hexlm::jinja {

// `visit_children(form, visit)` calls `visit` with every expression directly below a form of expression.

template <class Visit>
void visit_children(const ExpressionPtr& expression, Visit&& visit) {
  if (expression != nullptr) visit(*expression);
}

template <class Visit>
void visit_children(const std::vector<ExpressionPtr>& expressions, Visit&& visit) {
  for (const auto& expression : expressions) visit_children(expression, visit);
}

template <class First, class Visit>
void visit_children(const std::vector<std::pair<First, ExpressionPtr>>& pairs, Visit&& visit) {
  for (const auto& [first, expression] : pairs) {
    if constexpr (std::is_same_v<First, ExpressionPtr>) visit_children(first, visit);
    visit_children(expression, visit);
  }
}

template <class Visit>
void visit_children(const ArgumentList& arguments, Visit&& visit) {
  visit_children(arguments.positional, visit);
  visit_children(arguments.keyword, visit);
  visit_children(arguments.unpacked_list, visit);
  visit_children(arguments.unpacked_dict, visit);
}

template <class Visit>
void visit_children(const Literal&, Visit&&) {}
template <class Visit>
void visit_children(const Name&, Visit&&) {}
template <class Visit>
void visit_children(const ListLiteral& form, Visit&& visit) {
  visit_children(form.items, visit);
}
template <class Visit>
void visit_children(const DictLiteral& form, Visit&& visit) {
  visit_children(form.items, visit);
}
template <class Visit>
void visit_children(const Unary& form, Visit&& visit) {
  visit_children(form.operand, visit);
}
template <class Visit>
void visit_children(const ArithmeticChain& form, Visit&& visit) {
  visit_children(form.first, visit);
  visit_children(form.rest, visit);
}
template <class Visit>
void visit_children(const Logical& form, Visit&& visit) {
  visit_children(form.operands, visit);
}
template <class Visit>
void visit_children(const Comparison& form, Visit&& visit) {
  visit_children(form.first, visit);
  visit_children(form.rest, visit);
}
template <class Visit>
void visit_children(const Concatenation& form, Visit&& visit) {
  visit_children(form.operands, visit);
}
template <class Visit>
void visit_children(const Conditional& form, Visit&& visit) {
  visit_children(form.condition, visit);
  visit_children(form.value, visit);
  visit_children(form.otherwise, visit);
}
template <class Visit>
void visit_children(const AttributeAccess& form, Visit&& visit) {
  visit_children(form.object, visit);
}
template <class Visit>
void visit_children(const Subscript& form, Visit&& visit) {
  visit_children(form.object, visit);
  visit_children(form.key, visit);
}
template <class Visit>
void visit_children(const SliceAccess& form, Visit&& visit) {
  visit_children(form.object, visit);
  visit_children(form.start, visit);
  visit_children(form.stop, visit);
  visit_children(form.step, visit);
}
template <class Visit>
void visit_children(const CallExpression& form, Visit&& visit) {
  visit_children(form.callee, visit);
  visit_children(form.arguments, visit);
}
template <class Visit>
void visit_children(const FilterExpression& form, Visit&& visit) {
  visit_children(form.input, visit);
  visit_children(form.arguments, visit);
}
template <class Visit>
void visit_children(const TestExpression& form, Visit&& visit) {
  visit_children(form.input, visit);
  visit_children(form.arguments, visit);
}

}  // namespace hexlm::jinja
