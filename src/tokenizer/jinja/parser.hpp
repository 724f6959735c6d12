#pragma once

#include <algorithm>
#include <fmt/format.h>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/jinja/ast.hpp"
#include "tokenizer/jinja/lexer.hpp"

namespace hexlm::jinja {

/// Parameters of a macro and keyword arguments of a call; far more than any template has, and few enough to
/// search them one by one.
inline constexpr size_t max_named_arguments = 255;

inline Error too_many_names() {
  return Error{ErrorCode::limit, fmt::format("more than {} named arguments", max_named_arguments), {}};
}

/// Parses the tokens of one template by recursive descent, with Jinja's grammar and precedence.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  /// Errors: bad_input for syntax, unsupported for statements, filters and tests outside the subset, limit
  /// for nesting above `max_template_depth`.
  Result<Body> parse();
  /// Where the last error was found, as a byte of the source.
  uint32_t offset() const { return error_offset_.value_or(current().offset); }

 private:
  using Words = std::initializer_list<std::string_view>;

  const Token& current() const { return tokens_[position_]; }
  const Token& following() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  void advance() { position_ += position_ + 1 < tokens_.size() ? 1 : 0; }
  bool skip_name(std::string_view word);
  bool skip_symbol(std::string_view symbol);
  Status expect_symbol(std::string_view symbol);
  Status expect(Token::Kind kind, std::string_view what);
  Result<std::string> expect_name(std::string_view what);
  tl::unexpected<Error> unexpected_token(std::string_view expected) const;
  tl::unexpected<Error> fail_at(uint32_t offset, Error error);

  /// Statements up to one of `end_words`, which is left as the current token; to the template's end if empty.
  Result<Body> parse_body(Words end_words, std::string_view opener);
  Result<Statement> parse_statement();
  Result<Statement> parse_tag(const std::string& name);
  Result<Statement> parse_if();
  Result<Statement> parse_for();
  Result<Statement> parse_set();
  Result<Statement> parse_macro();
  Result<Statement> parse_call_block();
  Result<Statement> parse_filter_block();
  Result<Statement> parse_with();
  Result<Statement> parse_generation();
  Result<Statement> parse_loop_control(bool is_break);
  Result<Target> parse_target(bool allow_attribute);
  Result<Target> parse_single_target(bool allow_attribute);
  Status parse_signature(MacroDefinition& macro);
  /// The body of a macro or call block, noting which special names it uses.
  Status parse_macro_body(MacroDefinition& macro, std::string_view end_word, std::string_view opener);
  /// `name(arguments) | name …`, without a leading `|`.
  Result<std::vector<FilterExpression>> parse_filter_chain();

  Result<ExpressionPtr> parse_expression();
  /// One expression, or a tuple of several separated by commas.
  Result<ExpressionPtr> parse_tuple(bool in_parentheses, bool allow_conditional = true);
  bool at_tuple_end() const;
  Result<ExpressionPtr> parse_logical(bool conjunction);
  Result<ExpressionPtr> parse_not();
  Result<ExpressionPtr> parse_comparison();
  Result<ExpressionPtr> parse_sum();
  Result<ExpressionPtr> parse_concatenation();
  Result<ExpressionPtr> parse_product();
  Result<ExpressionPtr> parse_power();
  Result<ExpressionPtr> parse_unary(bool with_filters);
  Result<ExpressionPtr> parse_primary();
  Result<ExpressionPtr> parse_word();
  Result<ExpressionPtr> parse_list();
  Result<ExpressionPtr> parse_dict();
  Result<ExpressionPtr> parse_postfix(ExpressionPtr expression);
  Result<ExpressionPtr> parse_filters_and_tests(ExpressionPtr expression);
  Result<ExpressionPtr> parse_attribute(ExpressionPtr object);
  Result<ExpressionPtr> parse_subscript(ExpressionPtr object);
  Result<ExpressionPtr> parse_call(ExpressionPtr callee);
  Result<ArgumentList> parse_arguments();
  Status parse_argument(ArgumentList& arguments);
  Result<FilterExpression> parse_filter(ExpressionPtr input);
  Result<ExpressionPtr> parse_test(ExpressionPtr input);

  /// Fails when the expression, `children` below it, is nested too deeply.
  template <class Form>
  Result<ExpressionPtr> make(uint32_t offset, Form form);
  Status enter();

  std::vector<Token> tokens_;
  size_t position_ = 0;
  /// Recursion of the parser itself, and the deepest expression below the one under construction.
  int depth_ = 0;
  int loops_ = 0;
  std::optional<uint32_t> error_offset_;
  std::vector<MacroDefinition*> macros_;
};

/// Counts one level of the parser's recursion.
class ParserLevel {
 public:
  explicit ParserLevel(int& depth) : depth_(depth) { ++depth_; }
  ParserLevel(const ParserLevel&) = delete;
  ParserLevel& operator=(const ParserLevel&) = delete;
  ~ParserLevel() { --depth_; }

 private:
  int& depth_;
};

}  // namespace hexlm::jinja
