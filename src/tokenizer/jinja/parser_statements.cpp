#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "tokenizer/jinja/parser.hpp"

namespace hexlm::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::data:
      return "template text";
    case Token::Kind::variable_begin:
    case Token::Kind::block_begin:
      return "the beginning of a tag";
    case Token::Kind::variable_end:
      return "'}}'";
    case Token::Kind::block_end:
      return "'%}'";
    case Token::Kind::string:
      return "a string";
    case Token::Kind::integer:
    case Token::Kind::real:
      return "a number";
    case Token::Kind::end:
      return "the end of the template";
    case Token::Kind::name:
    case Token::Kind::symbol:
      break;
  }
  return fmt::format("'{}'", token.text);
}

constexpr std::array statement_names = {"if",   "for", "set",        "macro", "call",    "filter",
                                        "with", "raw", "generation", "break", "continue"};
// Statements of Jinja that chat templates have no use for.
constexpr std::array foreign_statements = {"block",      "extends", "include", "import", "from",
                                           "autoescape", "trans",   "do",      "debug"};

}  // namespace

bool Parser::skip_name(std::string_view word) {
  if (!current().is_name(word)) return false;
  advance();
  return true;
}

bool Parser::skip_symbol(std::string_view symbol) {
  if (!current().is_symbol(symbol)) return false;
  advance();
  return true;
}

tl::unexpected<Error> Parser::unexpected_token(std::string_view expected) const {
  return fail(ErrorCode::bad_input, fmt::format("expected {}, got {}", expected, describe(current())));
}

tl::unexpected<Error> Parser::fail_at(uint32_t offset, Error error) {
  error_offset_ = offset;
  return tl::unexpected<Error>(std::move(error));
}

Status Parser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) return unexpected_token(fmt::format("'{}'", symbol));
  return {};
}

Status Parser::expect(Token::Kind kind, std::string_view what) {
  if (current().kind != kind) return unexpected_token(what);
  advance();
  return {};
}

Result<std::string> Parser::expect_name(std::string_view what) {
  if (current().kind != Token::Kind::name) return unexpected_token(what);
  std::string name = current().text;
  advance();
  return name;
}

Result<Body> Parser::parse() { return parse_body({}, ""); }

Result<Body> Parser::parse_body(Words end_words, std::string_view opener) {
  const ParserLevel level(depth_);
  HEXLM_TRY(enter());
  const uint32_t begin = current().offset;
  if (end_words.size() > 0) {
    // As in Python, a colon may end the tag that opens a body.
    skip_symbol(":");
    HEXLM_TRY(expect(Token::Kind::block_end, "'%}'"));
  }
  Body body;
  while (current().kind != Token::Kind::end) {
    if (current().kind == Token::Kind::block_begin) {
      const bool ends = following().kind == Token::Kind::name &&
                        std::find(end_words.begin(), end_words.end(), following().text) != end_words.end();
      if (ends) {
        advance();
        return body;
      }
    }
    HEXLM_ASSIGN(Statement statement, parse_statement());
    body.push_back(std::move(statement));
  }
  if (end_words.size() == 0) return body;
  return fail_at(begin,
                 Error{ErrorCode::bad_input, fmt::format("the '{}' has no 'end{}'", opener, opener), {}});
}

Result<Statement> Parser::parse_statement() {
  Statement statement;
  statement.offset = current().offset;
  if (current().kind == Token::Kind::data) {
    statement.form = Data{current().text};
    advance();
    return statement;
  }
  const bool prints = current().kind == Token::Kind::variable_begin;
  advance();
  if (prints) {
    HEXLM_ASSIGN(ExpressionPtr value, parse_tuple(false));
    statement.form = Print{std::move(value)};
    HEXLM_TRY(expect(Token::Kind::variable_end, "'}}'"));
    return statement;
  }
  statement.offset = current().offset;
  const uint32_t offset = current().offset;
  HEXLM_ASSIGN(const std::string name, expect_name("the name of a statement"));
  auto parsed = parse_tag(name);
  if (!parsed) return parsed;
  parsed->offset = offset;
  HEXLM_TRY(expect(Token::Kind::block_end, "'%}'"));
  return parsed;
}

Result<Statement> Parser::parse_tag(const std::string& name) {
  const uint32_t offset = tokens_[position_ - 1].offset;
  if (name == "if") return parse_if();
  if (name == "for") return parse_for();
  if (name == "set") return parse_set();
  if (name == "macro") return parse_macro();
  if (name == "call") return parse_call_block();
  if (name == "filter") return parse_filter_block();
  if (name == "with") return parse_with();
  if (name == "generation") return parse_generation();
  if (name == "break" || name == "continue") return parse_loop_control(name == "break");
  if (std::find(foreign_statements.begin(), foreign_statements.end(), name) != foreign_statements.end()) {
    return fail_at(offset, Error{ErrorCode::unsupported,
                                 fmt::format("the statement '{}' is not supported in chat templates", name),
                                 {}});
  }
  const bool stray = name == "else" || name == "elif" || name.starts_with("end");
  if (stray)
    return fail_at(offset, Error{ErrorCode::bad_input, fmt::format("'{}' closes nothing here", name), {}});
  return fail_at(offset, unknown_name("statement", name, {statement_names.begin(), statement_names.end()}));
}

Result<Statement> Parser::parse_if() {
  If node;
  do {
    HEXLM_ASSIGN(ExpressionPtr condition, parse_tuple(false, false));
    HEXLM_ASSIGN(Body body, parse_body({"elif", "else", "endif"}, "if"));
    node.branches.emplace_back(std::move(condition), std::move(body));
  } while (skip_name("elif"));
  if (skip_name("else")) {
    HEXLM_ASSIGN(node.otherwise, parse_body({"endif"}, "if"));
  }
  advance();
  return Statement{0, std::move(node)};
}

Result<Statement> Parser::parse_for() {
  For node;
  HEXLM_ASSIGN(node.target, parse_target(false));
  if (!skip_name("in")) return unexpected_token("'in'");
  HEXLM_ASSIGN(node.iterable, parse_tuple(false, false));
  if (skip_name("if")) {
    HEXLM_ASSIGN(node.condition, parse_expression());
  }
  node.recursive = skip_name("recursive");
  ++loops_;
  HEXLM_ASSIGN(node.body, parse_body({"else", "endfor"}, "for"));
  --loops_;
  if (skip_name("else")) {
    HEXLM_ASSIGN(node.otherwise, parse_body({"endfor"}, "for"));
  }
  advance();
  return Statement{0, std::move(node)};
}

Result<Statement> Parser::parse_set() {
  HEXLM_ASSIGN(Target target, parse_target(true));
  if (skip_symbol("=")) {
    HEXLM_ASSIGN(ExpressionPtr value, parse_tuple(false));
    return Statement{0, Set{std::move(target), std::move(value)}};
  }
  SetBlock node;
  node.target = std::move(target);
  if (skip_symbol("|")) {
    HEXLM_ASSIGN(node.filters, parse_filter_chain());
  }
  HEXLM_ASSIGN(node.body, parse_body({"endset"}, "set"));
  advance();
  return Statement{0, std::move(node)};
}

Result<std::vector<FilterExpression>> Parser::parse_filter_chain() {
  std::vector<FilterExpression> filters;
  do {
    HEXLM_ASSIGN(FilterExpression filter, parse_filter(nullptr));
    filters.push_back(std::move(filter));
  } while (skip_symbol("|"));
  return filters;
}

Result<Target> Parser::parse_single_target(bool allow_attribute) {
  const ParserLevel level(depth_);
  HEXLM_TRY(enter());
  if (skip_symbol("(")) {
    HEXLM_ASSIGN(Target target, parse_target(false));
    HEXLM_TRY(expect_symbol(")"));
    return target;
  }
  const uint32_t offset = current().offset;
  Target target;
  HEXLM_ASSIGN(target.name, expect_name("a name to assign to"));
  static constexpr std::array constants = {"true", "True", "false", "False", "none", "None"};
  if (std::find(constants.begin(), constants.end(), target.name) != constants.end()) {
    return fail_at(offset,
                   Error{ErrorCode::bad_input, fmt::format("'{}' cannot be assigned to", target.name), {}});
  }
  if (allow_attribute && skip_symbol(".")) {
    HEXLM_ASSIGN(target.attribute, expect_name("the name of an attribute"));
  }
  return target;
}

Result<Target> Parser::parse_target(bool allow_attribute) {
  HEXLM_ASSIGN(Target first, parse_single_target(allow_attribute));
  if (!current().is_symbol(",") || !first.attribute.empty()) return first;
  Target target;
  target.unpacks = true;
  target.parts.push_back(std::move(first));
  while (skip_symbol(",")) {
    HEXLM_ASSIGN(Target part, parse_single_target(false));
    target.parts.push_back(std::move(part));
  }
  return target;
}

Status Parser::parse_signature(MacroDefinition& macro) {
  HEXLM_TRY(expect_symbol("("));
  while (!current().is_symbol(")")) {
    const uint32_t offset = current().offset;
    HEXLM_ASSIGN(std::string name, expect_name("the name of a parameter"));
    if (std::find(macro.parameters.begin(), macro.parameters.end(), name) != macro.parameters.end()) {
      return fail_at(offset,
                     Error{ErrorCode::bad_input, fmt::format("the parameter '{}' is repeated", name), {}});
    }
    if (macro.parameters.size() == max_named_arguments) return fail_at(offset, too_many_names());
    macro.parameters.push_back(std::move(name));
    if (skip_symbol("=")) {
      HEXLM_ASSIGN(ExpressionPtr value, parse_expression());
      macro.defaults.push_back(std::move(value));
    } else if (!macro.defaults.empty()) {
      return fail_at(offset,
                     Error{ErrorCode::bad_input, "a parameter without default follows one with default", {}});
    }
    if (!skip_symbol(",")) break;
  }
  return expect_symbol(")");
}

Status Parser::parse_macro_body(MacroDefinition& macro, std::string_view end_word, std::string_view opener) {
  // A loop around the macro cannot be left from within it.
  const int loops = std::exchange(loops_, 0);
  macros_.push_back(&macro);
  HEXLM_ASSIGN(macro.body, parse_body({end_word}, opener));
  macros_.pop_back();
  loops_ = loops;
  advance();
  return {};
}

Result<Statement> Parser::parse_macro() {
  MacroDefinition macro;
  HEXLM_ASSIGN(macro.name, expect_name("the name of the macro"));
  HEXLM_TRY(parse_signature(macro));
  HEXLM_TRY(parse_macro_body(macro, "endmacro", "macro"));
  return Statement{0, std::move(macro)};
}

Result<Statement> Parser::parse_call_block() {
  CallBlock node;
  node.caller = std::make_unique<MacroDefinition>();
  node.caller->name = "caller";
  if (current().is_symbol("(")) HEXLM_TRY(parse_signature(*node.caller));
  const uint32_t offset = current().offset;
  HEXLM_ASSIGN(node.call, parse_expression());
  if (!std::holds_alternative<CallExpression>(node.call->form)) {
    return fail_at(offset, Error{ErrorCode::bad_input, "'call' expects the call of a macro", {}});
  }
  HEXLM_TRY(parse_macro_body(*node.caller, "endcall", "call"));
  return Statement{0, std::move(node)};
}

Result<Statement> Parser::parse_filter_block() {
  FilterBlock node;
  HEXLM_ASSIGN(node.filters, parse_filter_chain());
  HEXLM_ASSIGN(node.body, parse_body({"endfilter"}, "filter"));
  advance();
  return Statement{0, std::move(node)};
}

Result<Statement> Parser::parse_with() {
  With node;
  while (current().kind == Token::Kind::name) {
    HEXLM_ASSIGN(Target target, parse_single_target(false));
    HEXLM_TRY(expect_symbol("="));
    HEXLM_ASSIGN(ExpressionPtr value, parse_expression());
    node.assignments.emplace_back(std::move(target), std::move(value));
    if (!skip_symbol(",")) break;
  }
  HEXLM_ASSIGN(node.body, parse_body({"endwith"}, "with"));
  advance();
  return Statement{0, std::move(node)};
}

Result<Statement> Parser::parse_generation() {
  Generation node;
  // Jinja makes a function of its body, which a loop around it cannot be left from.
  const int loops = std::exchange(loops_, 0);
  HEXLM_ASSIGN(node.body, parse_body({"endgeneration"}, "generation"));
  loops_ = loops;
  advance();
  return Statement{0, std::move(node)};
}

Result<Statement> Parser::parse_loop_control(bool is_break) {
  if (loops_ == 0) {
    return fail_at(tokens_[position_ - 1].offset,
                   Error{ErrorCode::bad_input,
                         fmt::format("'{}' outside of a loop", is_break ? "break" : "continue"),
                         {}});
  }
  if (is_break) return Statement{0, Break{}};
  return Statement{0, Continue{}};
}

}  // namespace hexlm::jinja
