#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/registry.hpp"
#include "tokenizer/jinja/value.hpp"

namespace hexlm::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
  bool tuple = false;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
struct Unary {
  enum class Operator { negate, plus, invert } operation;
  ExpressionPtr operand;
};
/// `first op operand op operand …`, evaluated from the left.
struct ArithmeticChain {
  ExpressionPtr first;
  std::vector<std::pair<Arithmetic, ExpressionPtr>> rest;
};
/// All operands joined by `and`, or all by `or`.
struct Logical {
  bool conjunction = false;
  std::vector<ExpressionPtr> operands;
};
/// `first op operand op operand …`: true when every neighbouring pair is.
struct Comparison {
  enum class Operator { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};
/// Texts joined by `~`.
struct Concatenation {
  std::vector<ExpressionPtr> operands;
};
struct Conditional {
  ExpressionPtr condition;
  ExpressionPtr value;
  /// Null without `else`.
  ExpressionPtr otherwise;
};
struct AttributeAccess {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object;
  ExpressionPtr key;
};
struct SliceAccess {
  ExpressionPtr object;
  /// Null where omitted.
  ExpressionPtr start, stop, step;
};
struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keyword;
  /// `*list` and `**dict`; null if absent.
  ExpressionPtr unpacked_list, unpacked_dict;
};
struct CallExpression {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct FilterExpression {
  /// Null for the text of a filter or set block.
  ExpressionPtr input;
  const Filter* filter = nullptr;
  ArgumentList arguments;
};
struct TestExpression {
  ExpressionPtr input;
  const Test* test = nullptr;
  ArgumentList arguments;
};

struct Expression {
  /// Byte of the source, for messages.
  uint32_t offset = 0;
  /// Levels of expressions below and including this one.
  int depth = 1;
  std::variant<Literal, Name, ListLiteral, DictLiteral, Unary, ArithmeticChain, Logical, Comparison,
               Concatenation, Conditional, AttributeAccess, Subscript, SliceAccess, CallExpression,
               FilterExpression, TestExpression>
      form;
};

struct Statement;
using Body = std::vector<Statement>;
/// Names that are undefined in a block until it assigns them, whatever the context has (symbols.hpp), with
/// the undefined values that they then have.
using HiddenNames = std::vector<std::pair<std::string, Value>>;

/// A name, `namespace.attribute`, or several of them that a sequence is unpacked into.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> parts;
  bool unpacks = false;
};

struct Data {
  std::string text;
};
struct Print {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  /// Null without `if`.
  ExpressionPtr condition;
  Body body;
  Body otherwise;
  HiddenNames hidden, hidden_otherwise;
  bool recursive = false;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  std::vector<FilterExpression> filters;
  Body body;
  HiddenNames hidden;
};
struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  /// Of the last parameters.
  std::vector<ExpressionPtr> defaults;
  Body body;
  HiddenNames hidden;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};
struct CallBlock {
  /// A CallExpression.
  ExpressionPtr call;
  std::unique_ptr<MacroDefinition> caller;
};
struct FilterBlock {
  std::vector<FilterExpression> filters;
  Body body;
  HiddenNames hidden;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
  HiddenNames hidden;
};
/// `{% generation %}`: marks the assistant's part for training; a scope of its own, else without effect.
struct Generation {
  Body body;
  HiddenNames hidden;
};
struct Break {};
struct Continue {};

struct Statement {
  uint32_t offset = 0;
  std::variant<Data, Print, If, For, Set, SetBlock, MacroDefinition, CallBlock, FilterBlock, With, Generation,
               Break, Continue>
      form;
};

}  // namespace hexlm::jinja
