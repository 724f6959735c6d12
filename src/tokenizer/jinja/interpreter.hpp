#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/jinja/ast.hpp"
#include "tokenizer/jinja/budget.hpp"
#include "tokenizer/jinja/object.hpp"

namespace hexlm::jinja {

/// The variables of one block. Reading looks outwards through the parents, writing stays here.
struct Scope {
  std::shared_ptr<Scope> parent;
  /// Names point into the template.
  std::vector<std::pair<std::string_view, Value>> variables;
  /// Whether a macro refers to this scope, and the interpreter therefore keeps it.
  bool captured = false;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

/// Renders one template once.
class Interpreter {
 public:
  /// `context` is a mapping; it and the template must outlive the interpreter.
  explicit Interpreter(const Mapping& context) : context_(context), scope_(std::make_shared<Scope>()) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();

  /// Errors: bad_input for wrong types, undefined values and what the template raises; limit for budgets.
  /// `hidden` are the names that find_hidden_names gives for the whole template.
  Result<std::string> render(const Body& body, const HiddenNames& hidden);
  /// Where the last error was found, as a byte of the source.
  std::optional<uint32_t> error_offset() const { return error_offset_; }

  Budget& budget() { return budget_; }
  Result<Value> call(const Value& callee, Arguments arguments);
  Result<Value> call_macro(const MacroDefinition& macro, const std::shared_ptr<Scope>& scope,
                           Arguments arguments);
  /// The text of a recursive loop over `iterable`, `depth` levels below the outermost.
  Result<Value> call_loop(const For& node, const std::shared_ptr<Scope>& scope, const Value& iterable,
                          int64_t depth);
  /// Whether an item of a loop passes its condition.
  Result<bool> passes(const For& node, const std::shared_ptr<Scope>& scope, const Value& item);
  /// Keeps an object whose references may be circular until the rendering ends.
  void keep(std::shared_ptr<Object> object);

 private:
  enum class Flow { normal, broken, continued };

  Result<Value> evaluate(const Expression& expression);
  Result<Value> form(const Literal& node);
  Result<Value> form(const Name& node);
  Result<Value> form(const ListLiteral& node);
  Result<Value> form(const DictLiteral& node);
  Result<Value> form(const Unary& node);
  Result<Value> form(const ArithmeticChain& node);
  Result<Value> form(const Logical& node);
  Result<Value> form(const Comparison& node);
  Result<Value> form(const Concatenation& node);
  Result<Value> form(const Conditional& node);
  Result<Value> form(const AttributeAccess& node);
  Result<Value> form(const Subscript& node);
  Result<Value> form(const SliceAccess& node);
  Result<Value> form(const CallExpression& node);
  Result<Value> form(const FilterExpression& node);
  Result<Value> form(const TestExpression& node);
  Result<Value> apply(const FilterExpression& node, const Value& input);
  Result<Value> apply(const std::vector<FilterExpression>& filters, Value value);
  Result<Value> evaluate_or_none(const ExpressionPtr& expression);
  Result<bool> compare(Comparison::Operator operation, const Value& left, const Value& right);
  Result<Arguments> evaluate(const ArgumentList& list);
  Status unpack(const ArgumentList& list, Arguments& arguments);
  Value resolve(const std::string& name);

  Result<Flow> execute(const Body& body);
  Result<Flow> execute(const Statement& statement);
  Result<Flow> run(const Data& node);
  Result<Flow> run(const Print& node);
  Result<Flow> run(const If& node);
  Result<Flow> run(const For& node);
  Result<Flow> run(const Set& node);
  Result<Flow> run(const SetBlock& node);
  Result<Flow> run(const MacroDefinition& node);
  Result<Flow> run(const CallBlock& node);
  Result<Flow> run(const FilterBlock& node);
  Result<Flow> run(const With& node);
  Result<Flow> run(const Generation& node);
  Result<Flow> run(const Break&) { return Flow::broken; }
  Result<Flow> run(const Continue&) { return Flow::continued; }

  Status assign(const Target& target, Value value);
  Result<Flow> run_loop(const For& node, std::vector<Value> items, int64_t depth);
  Status bind_parameters(const MacroDefinition& macro, Arguments& arguments);
  Status bind_keywords(const MacroDefinition& macro, Arguments& arguments);
  Status set_defaults(const MacroDefinition& macro);
  Value capture(const MacroDefinition& macro);

  /// A scope in which the hidden names are undefined.
  std::shared_ptr<Scope> block_scope(std::shared_ptr<Scope> parent, const HiddenNames& hidden);
  void write(std::string_view text);
  void begin_buffer() { buffers_.emplace_back(); }
  Value end_buffer();

  // First, and so destroyed last: every value of the rendering refers to it.
  Budget budget_;
  const Mapping& context_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Scope>> captured_scopes_;
  std::vector<std::shared_ptr<Object>> kept_objects_;
  std::vector<std::string> buffers_;
  uint64_t buffered_bytes_ = 0;
  int depth_ = 0;
  std::optional<uint32_t> error_offset_;
};

}  // namespace hexlm::jinja
