#include <algorithm>
#include <fmt/format.h>

#include "tokenizer/jinja/ast_children.hpp"
#include "tokenizer/jinja/parser.hpp"

namespace hexlm::jinja {
namespace {

tl::unexpected<Error> too_deep() {
  return fail(ErrorCode::limit, fmt::format("the template nests deeper than {} levels", max_template_depth));
}

}  // namespace

Status Parser::enter() {
  if (depth_ > max_template_depth) return too_deep();
  return {};
}

template <class Form>
Result<ExpressionPtr> Parser::make(uint32_t offset, Form form) {
  int below = 0;
  visit_children(form, [&](const Expression& child) { below = std::max(below, child.depth); });
  const int depth = 1 + below;
  if (depth > max_template_depth) return too_deep();
  auto expression = std::make_unique<Expression>();
  expression->offset = offset;
  expression->depth = depth;
  expression->form = std::move(form);
  return expression;
}

Result<ExpressionPtr> Parser::parse_expression() {
  const uint32_t offset = current().offset;
  HEXLM_ASSIGN(ExpressionPtr value, parse_logical(false));
  while (skip_name("if")) {
    HEXLM_ASSIGN(ExpressionPtr condition, parse_logical(false));
    ExpressionPtr otherwise;
    if (skip_name("else")) {
      const ParserLevel level(depth_);
      HEXLM_TRY(enter());
      HEXLM_ASSIGN(otherwise, parse_expression());
    }
    HEXLM_ASSIGN(value,
                 make(offset, Conditional{std::move(condition), std::move(value), std::move(otherwise)}));
  }
  return value;
}

bool Parser::at_tuple_end() const {
  return current().kind == Token::Kind::variable_end || current().kind == Token::Kind::block_end ||
         current().is_symbol(")");
}

Result<ExpressionPtr> Parser::parse_tuple(bool in_parentheses, bool allow_conditional) {
  const uint32_t offset = current().offset;
  ListLiteral tuple;
  tuple.tuple = true;
  bool comma = false;
  while (!at_tuple_end()) {
    HEXLM_ASSIGN(ExpressionPtr item, allow_conditional ? parse_expression() : parse_logical(false));
    tuple.items.push_back(std::move(item));
    comma = skip_symbol(",");
    if (!comma) break;
  }
  if (tuple.items.empty() && !in_parentheses) return unexpected_token("an expression");
  if (tuple.items.size() == 1 && !comma) return std::move(tuple.items[0]);
  return make(offset, std::move(tuple));
}

Result<ExpressionPtr> Parser::parse_logical(bool conjunction) {
  const uint32_t offset = current().offset;
  Logical logical;
  logical.conjunction = conjunction;
  do {
    HEXLM_ASSIGN(ExpressionPtr operand, conjunction ? parse_not() : parse_logical(true));
    logical.operands.push_back(std::move(operand));
  } while (skip_name(conjunction ? "and" : "or"));
  if (logical.operands.size() == 1) return std::move(logical.operands[0]);
  return make(offset, std::move(logical));
}

Result<ExpressionPtr> Parser::parse_not() {
  const uint32_t offset = current().offset;
  if (!skip_name("not")) return parse_comparison();
  const ParserLevel level(depth_);
  HEXLM_TRY(enter());
  HEXLM_ASSIGN(ExpressionPtr operand, parse_not());
  return make(offset, Unary{Unary::Operator::invert, std::move(operand)});
}

Result<ExpressionPtr> Parser::parse_comparison() {
  using Operator = Comparison::Operator;
  static constexpr std::pair<std::string_view, Operator> symbols[] = {
      {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
      {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal}};
  HEXLM_ASSIGN(ExpressionPtr first, parse_sum());
  const uint32_t offset = current().offset;
  Comparison comparison;
  while (true) {
    const auto* symbol = std::find_if(std::begin(symbols), std::end(symbols),
                                      [&](const auto& entry) { return current().is_symbol(entry.first); });
    Operator operation = Operator::in;
    if (symbol != std::end(symbols)) {
      operation = symbol->second;
    } else if (current().is_name("not") && following().is_name("in")) {
      operation = Operator::not_in;
      advance();
    } else if (!current().is_name("in")) {
      break;
    }
    advance();
    HEXLM_ASSIGN(ExpressionPtr operand, parse_sum());
    comparison.rest.emplace_back(operation, std::move(operand));
  }
  if (comparison.rest.empty()) return first;
  comparison.first = std::move(first);
  return make(offset, std::move(comparison));
}

Result<ExpressionPtr> Parser::parse_sum() {
  HEXLM_ASSIGN(ExpressionPtr first, parse_concatenation());
  const uint32_t offset = current().offset;
  ArithmeticChain chain;
  while (current().is_symbol("+") || current().is_symbol("-")) {
    const Arithmetic operation = current().is_symbol("+") ? Arithmetic::add : Arithmetic::subtract;
    advance();
    HEXLM_ASSIGN(ExpressionPtr operand, parse_concatenation());
    chain.rest.emplace_back(operation, std::move(operand));
  }
  if (chain.rest.empty()) return first;
  chain.first = std::move(first);
  return make(offset, std::move(chain));
}

Result<ExpressionPtr> Parser::parse_concatenation() {
  const uint32_t offset = current().offset;
  Concatenation concatenation;
  do {
    HEXLM_ASSIGN(ExpressionPtr operand, parse_product());
    concatenation.operands.push_back(std::move(operand));
  } while (skip_symbol("~"));
  if (concatenation.operands.size() == 1) return std::move(concatenation.operands[0]);
  return make(offset, std::move(concatenation));
}

Result<ExpressionPtr> Parser::parse_product() {
  static constexpr std::pair<std::string_view, Arithmetic> symbols[] = {{"*", Arithmetic::multiply},
                                                                        {"/", Arithmetic::divide},
                                                                        {"//", Arithmetic::floor_divide},
                                                                        {"%", Arithmetic::modulo}};
  HEXLM_ASSIGN(ExpressionPtr first, parse_power());
  const uint32_t offset = current().offset;
  ArithmeticChain chain;
  while (true) {
    const auto* symbol = std::find_if(std::begin(symbols), std::end(symbols),
                                      [&](const auto& entry) { return current().is_symbol(entry.first); });
    if (symbol == std::end(symbols)) break;
    advance();
    HEXLM_ASSIGN(ExpressionPtr operand, parse_power());
    chain.rest.emplace_back(symbol->second, std::move(operand));
  }
  if (chain.rest.empty()) return first;
  chain.first = std::move(first);
  return make(offset, std::move(chain));
}

Result<ExpressionPtr> Parser::parse_power() {
  HEXLM_ASSIGN(ExpressionPtr first, parse_unary(true));
  const uint32_t offset = current().offset;
  ArithmeticChain chain;
  // Jinja's ** associates to the left, unlike Python's.
  while (skip_symbol("**")) {
    HEXLM_ASSIGN(ExpressionPtr operand, parse_unary(true));
    chain.rest.emplace_back(Arithmetic::power, std::move(operand));
  }
  if (chain.rest.empty()) return first;
  chain.first = std::move(first);
  return make(offset, std::move(chain));
}

Result<ExpressionPtr> Parser::parse_unary(bool with_filters) {
  const ParserLevel level(depth_);
  HEXLM_TRY(enter());
  const uint32_t offset = current().offset;
  ExpressionPtr expression;
  if (current().is_symbol("-") || current().is_symbol("+")) {
    const auto operation = current().is_symbol("-") ? Unary::Operator::negate : Unary::Operator::plus;
    advance();
    HEXLM_ASSIGN(ExpressionPtr operand, parse_unary(false));
    HEXLM_ASSIGN(expression, make(offset, Unary{operation, std::move(operand)}));
  } else {
    HEXLM_ASSIGN(expression, parse_primary());
  }
  HEXLM_ASSIGN(expression, parse_postfix(std::move(expression)));
  return with_filters ? parse_filters_and_tests(std::move(expression)) : std::move(expression);
}

Result<ExpressionPtr> Parser::parse_primary() {
  const Token& token = current();
  const uint32_t offset = token.offset;
  switch (token.kind) {
    case Token::Kind::name:
      return parse_word();
    case Token::Kind::string: {
      std::string text;
      while (current().kind == Token::Kind::string) {
        text += current().text;
        advance();
      }
      return make(offset, Literal{make_text(nullptr, std::move(text))});
    }
    case Token::Kind::integer:
      advance();
      return make(offset, Literal{Value::natural(token.integer)});
    case Token::Kind::real:
      advance();
      return make(offset, Literal{Value::real(token.real)});
    default:
      break;
  }
  if (token.is_symbol("[")) return parse_list();
  if (token.is_symbol("{")) return parse_dict();
  if (!skip_symbol("(")) return unexpected_token("an expression");
  HEXLM_ASSIGN(ExpressionPtr expression, parse_tuple(true));
  HEXLM_TRY(expect_symbol(")"));
  return expression;
}

Result<ExpressionPtr> Parser::parse_word() {
  const uint32_t offset = current().offset;
  const std::string word = current().text;
  advance();
  if (word == "true" || word == "True") return make(offset, Literal{Value::boolean(true)});
  if (word == "false" || word == "False") return make(offset, Literal{Value::boolean(false)});
  if (word == "none" || word == "None") return make(offset, Literal{Value()});
  for (MacroDefinition* macro : macros_) {
    macro->uses_varargs |= word == "varargs";
    macro->uses_kwargs |= word == "kwargs";
    macro->uses_caller |= word == "caller";
  }
  return make(offset, Name{word});
}

Result<ExpressionPtr> Parser::parse_list() {
  const uint32_t offset = current().offset;
  HEXLM_TRY(expect_symbol("["));
  ListLiteral list;
  while (!current().is_symbol("]")) {
    HEXLM_ASSIGN(ExpressionPtr item, parse_expression());
    list.items.push_back(std::move(item));
    if (!skip_symbol(",")) break;
  }
  HEXLM_TRY(expect_symbol("]"));
  return make(offset, std::move(list));
}

Result<ExpressionPtr> Parser::parse_dict() {
  const uint32_t offset = current().offset;
  HEXLM_TRY(expect_symbol("{"));
  DictLiteral dict;
  while (!current().is_symbol("}")) {
    HEXLM_ASSIGN(ExpressionPtr key, parse_expression());
    HEXLM_TRY(expect_symbol(":"));
    HEXLM_ASSIGN(ExpressionPtr value, parse_expression());
    dict.items.emplace_back(std::move(key), std::move(value));
    if (!skip_symbol(",")) break;
  }
  HEXLM_TRY(expect_symbol("}"));
  return make(offset, std::move(dict));
}

Result<ExpressionPtr> Parser::parse_postfix(ExpressionPtr expression) {
  while (true) {
    if (current().is_symbol(".")) {
      HEXLM_ASSIGN(expression, parse_attribute(std::move(expression)));
    } else if (current().is_symbol("[")) {
      HEXLM_ASSIGN(expression, parse_subscript(std::move(expression)));
    } else if (current().is_symbol("(")) {
      HEXLM_ASSIGN(expression, parse_call(std::move(expression)));
    } else {
      return expression;
    }
  }
}

Result<ExpressionPtr> Parser::parse_filters_and_tests(ExpressionPtr expression) {
  while (true) {
    const uint32_t offset = following().offset;
    if (skip_symbol("|")) {
      HEXLM_ASSIGN(FilterExpression filter, parse_filter(std::move(expression)));
      HEXLM_ASSIGN(expression, make(offset, std::move(filter)));
    } else if (current().is_name("is")) {
      HEXLM_ASSIGN(expression, parse_test(std::move(expression)));
    } else if (current().is_symbol("(")) {
      HEXLM_ASSIGN(expression, parse_call(std::move(expression)));
    } else {
      return expression;
    }
  }
}

Result<ExpressionPtr> Parser::parse_attribute(ExpressionPtr object) {
  HEXLM_TRY(expect_symbol("."));
  const Token& token = current();
  const uint32_t offset = token.offset;
  if (token.kind == Token::Kind::name) {
    advance();
    return make(offset, AttributeAccess{std::move(object), token.text});
  }
  if (token.kind != Token::Kind::integer) return unexpected_token("a name or number behind '.'");
  advance();
  HEXLM_ASSIGN(ExpressionPtr key, make(offset, Literal{Value::natural(token.integer)}));
  return make(offset, Subscript{std::move(object), std::move(key)});
}

Result<ExpressionPtr> Parser::parse_subscript(ExpressionPtr object) {
  const uint32_t offset = current().offset;
  HEXLM_TRY(expect_symbol("["));
  ExpressionPtr bounds[3];
  size_t bound = 0;
  bool slice = false;
  while (!current().is_symbol("]")) {
    if (!current().is_symbol(":")) {
      HEXLM_ASSIGN(bounds[bound], parse_expression());
    }
    if (bound == 2 || !skip_symbol(":")) break;
    slice = true;
    ++bound;
  }
  HEXLM_TRY(expect_symbol("]"));
  if (slice) {
    return make(offset, SliceAccess{std::move(object), std::move(bounds[0]), std::move(bounds[1]),
                                    std::move(bounds[2])});
  }
  if (bounds[0] == nullptr) return fail_at(offset, Error{ErrorCode::bad_input, "the subscript is empty", {}});
  return make(offset, Subscript{std::move(object), std::move(bounds[0])});
}

Result<ExpressionPtr> Parser::parse_call(ExpressionPtr callee) {
  const uint32_t offset = callee->offset;
  HEXLM_ASSIGN(ArgumentList arguments, parse_arguments());
  return make(offset, CallExpression{std::move(callee), std::move(arguments)});
}

Result<ArgumentList> Parser::parse_arguments() {
  HEXLM_TRY(expect_symbol("("));
  ArgumentList arguments;
  while (!current().is_symbol(")")) {
    HEXLM_TRY(parse_argument(arguments));
    if (!skip_symbol(",")) break;
  }
  HEXLM_TRY(expect_symbol(")"));
  return arguments;
}

Status Parser::parse_argument(ArgumentList& arguments) {
  const auto misplaced = [&](std::string_view what) {
    return fail_at(current().offset,
                   Error{ErrorCode::bad_input, fmt::format("{} is misplaced in the call", what), {}});
  };
  if (current().is_symbol("*") || current().is_symbol("**")) {
    const bool dict = current().is_symbol("**");
    ExpressionPtr& slot = dict ? arguments.unpacked_dict : arguments.unpacked_list;
    if (slot != nullptr || arguments.unpacked_dict != nullptr) return misplaced("the unpacked argument");
    advance();
    HEXLM_ASSIGN(slot, parse_expression());
    return {};
  }
  if (current().kind == Token::Kind::name && following().is_symbol("=")) {
    if (arguments.unpacked_dict != nullptr) return misplaced("the keyword argument");
    std::string name = current().text;
    for (const auto& [known, value] : arguments.keyword) {
      if (known == name) return misplaced("the repeated keyword argument");
    }
    if (arguments.keyword.size() == max_named_arguments) return fail_at(current().offset, too_many_names());
    advance();
    advance();
    HEXLM_ASSIGN(ExpressionPtr value, parse_expression());
    arguments.keyword.emplace_back(std::move(name), std::move(value));
    return {};
  }
  const bool last =
      !arguments.keyword.empty() || arguments.unpacked_list != nullptr || arguments.unpacked_dict != nullptr;
  if (last) return misplaced("the positional argument");
  HEXLM_ASSIGN(ExpressionPtr value, parse_expression());
  arguments.positional.push_back(std::move(value));
  return {};
}

Result<FilterExpression> Parser::parse_filter(ExpressionPtr input) {
  FilterExpression expression;
  expression.input = std::move(input);
  const uint32_t offset = current().offset;
  HEXLM_ASSIGN(const std::string name, expect_name("the name of a filter"));
  auto filter = find_filter(name);
  if (!filter) return fail_at(offset, filter.error());
  expression.filter = *filter;
  if (current().is_symbol("(")) {
    HEXLM_ASSIGN(expression.arguments, parse_arguments());
  }
  return expression;
}

Result<ExpressionPtr> Parser::parse_test(ExpressionPtr input) {
  advance();
  const bool negated = skip_name("not");
  TestExpression expression;
  expression.input = std::move(input);
  const uint32_t offset = current().offset;
  HEXLM_ASSIGN(const std::string name, expect_name("the name of a test"));
  auto test = find_test(name);
  if (!test) return fail_at(offset, test.error());
  expression.test = *test;
  const Token& next = current();
  const bool operand = next.kind == Token::Kind::name || next.kind == Token::Kind::string ||
                       next.kind == Token::Kind::integer || next.kind == Token::Kind::real ||
                       next.is_symbol("[") || next.is_symbol("{");
  if (next.is_symbol("(")) {
    HEXLM_ASSIGN(expression.arguments, parse_arguments());
  } else if (next.is_name("is")) {
    return unexpected_token("no second test; join tests with 'and'");
  } else if (operand && !next.is_name("else") && !next.is_name("or") && !next.is_name("and")) {
    HEXLM_ASSIGN(ExpressionPtr argument, parse_primary());
    HEXLM_ASSIGN(argument, parse_postfix(std::move(argument)));
    expression.arguments.positional.push_back(std::move(argument));
  }
  HEXLM_ASSIGN(ExpressionPtr result, make(offset, std::move(expression)));
  if (!negated) return result;
  return make(offset, Unary{Unary::Operator::invert, std::move(result)});
}

}  // namespace hexlm::jinja
