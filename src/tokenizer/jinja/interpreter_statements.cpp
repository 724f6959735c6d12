#include <fmt/format.h>
#include <utility>

#include "tokenizer/jinja/interpreter.hpp"
#include "tokenizer/jinja/loop.hpp"
#include "tokenizer/jinja/operators.hpp"
#include "tokenizer/jinja/represent.hpp"

namespace hexlm::jinja {
namespace {

/// What a scope or object costs while it is kept to the end, beyond the values in it.
constexpr uint64_t kept_bytes = 256;

/// Makes `scope` the current one for a block.
class ScopeChange {
 public:
  ScopeChange(std::shared_ptr<Scope>& current, std::shared_ptr<Scope> scope)
      : current_(current), previous_(std::exchange(current, std::move(scope))) {}
  ScopeChange(const ScopeChange&) = delete;
  ScopeChange& operator=(const ScopeChange&) = delete;
  ~ScopeChange() { current_ = std::move(previous_); }

 private:
  std::shared_ptr<Scope>& current_;
  std::shared_ptr<Scope> previous_;
};

std::shared_ptr<Scope> inner_scope(std::shared_ptr<Scope> parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = std::move(parent);
  return scope;
}

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const auto& [known, value] : variables) {
    if (known == name) return &value;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, slot] : variables) {
    if (known == name) {
      slot = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Interpreter::~Interpreter() {
  for (const auto& scope : captured_scopes_) scope->variables.clear();
  for (const auto& object : kept_objects_) object->clear();
}

std::shared_ptr<Scope> Interpreter::block_scope(std::shared_ptr<Scope> parent, const HiddenNames& hidden) {
  auto scope = inner_scope(std::move(parent));
  if (budget_.spend(hidden.size())) scope->variables.assign(hidden.begin(), hidden.end());
  return scope;
}

void Interpreter::keep(std::shared_ptr<Object> object) {
  budget_.hold(kept_bytes);
  kept_objects_.push_back(std::move(object));
}

Result<std::string> Interpreter::render(const Body& body, const HiddenNames& hidden) {
  scope_ = block_scope(nullptr, hidden);
  begin_buffer();
  HEXLM_TRY(execute(body));
  if (budget_.exhausted()) return tl::unexpected<Error>(budget_.error());
  return std::move(buffers_.back());
}

void Interpreter::write(std::string_view text) {
  buffered_bytes_ += text.size();
  if (buffered_bytes_ > max_output_bytes) {
    budget_.exhaust("the template's output exceeds 64 MiB");
    return;
  }
  if (budget_.spend_bytes(text.size())) buffers_.back() += text;
}

Value Interpreter::end_buffer() {
  std::string text = std::move(buffers_.back());
  buffers_.pop_back();
  buffered_bytes_ -= text.size();
  return make_text(&budget_, std::move(text));
}

Result<Interpreter::Flow> Interpreter::execute(const Body& body) {
  for (const Statement& statement : body) {
    HEXLM_ASSIGN(const Flow flow, execute(statement));
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::execute(const Statement& statement) {
  if (++depth_ > max_evaluation_depth) budget_.exhaust("the template calls itself too deeply");
  Result<Flow> flow = Flow::normal;
  if (budget_.spend()) flow = std::visit([this](const auto& node) { return run(node); }, statement.form);
  --depth_;
  if (flow && budget_.exhausted()) flow = tl::unexpected<Error>(budget_.error());
  if (!flow && !error_offset_) error_offset_ = statement.offset;
  return flow;
}

Result<Interpreter::Flow> Interpreter::run(const Data& node) {
  write(node.text);
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::run(const Print& node) {
  HEXLM_ASSIGN(const Value value, evaluate(*node.value));
  if (const Text* text = value.as_text()) {
    write(text->bytes);
  } else {
    write(to_text(budget_, value));
  }
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::run(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    HEXLM_ASSIGN(const Value value, evaluate(*condition));
    if (is_true(value)) return execute(body);
  }
  return execute(node.otherwise);
}

Result<bool> Interpreter::passes(const For& node, const std::shared_ptr<Scope>& scope, const Value& item) {
  const ScopeChange change(scope_, inner_scope(scope));
  HEXLM_TRY(assign(node.target, item));
  HEXLM_ASSIGN(const Value holds, evaluate(*node.condition));
  return is_true(holds);
}

Result<Interpreter::Flow> Interpreter::run_loop(const For& node, std::vector<Value> items, int64_t depth) {
  const auto loop = std::make_shared<Loop>(*this, node, scope_, std::move(items), depth);
  const Value loop_value = make_object(budget_, loop);
  bool completed = false;
  for (size_t index = 0;; ++index) {
    HEXLM_ASSIGN(const bool more, loop->has(index));
    if (!more) break;
    const ScopeChange change(scope_, block_scope(scope_, node.hidden));
    HEXLM_TRY(assign(node.target, loop->move_to(index)));
    scope_->set("loop", loop_value);
    HEXLM_ASSIGN(const Flow flow, execute(node.body));
    completed |= flow == Flow::normal;
    if (flow == Flow::broken || !budget_.spend()) break;
  }
  loop->finish();
  // As in Jinja, `else` applies unless an iteration reached its end: one left by break or continue did not.
  if (completed) return Flow::normal;
  const ScopeChange change(scope_, block_scope(scope_, node.hidden_otherwise));
  return execute(node.otherwise);
}

Result<Interpreter::Flow> Interpreter::run(const For& node) {
  HEXLM_ASSIGN(const Value iterable, evaluate(*node.iterable));
  HEXLM_ASSIGN(std::vector<Value> items, iterate(budget_, iterable));
  return run_loop(node, std::move(items), 0);
}

Result<Value> Interpreter::call_loop(const For& node, const std::shared_ptr<Scope>& scope,
                                     const Value& iterable, int64_t depth) {
  const ScopeChange change(scope_, scope);
  HEXLM_ASSIGN(std::vector<Value> items, iterate(budget_, iterable));
  begin_buffer();
  HEXLM_TRY(run_loop(node, std::move(items), depth));
  return end_buffer();
}

Status Interpreter::assign(const Target& target, Value value) {
  if (target.unpacks) {
    HEXLM_ASSIGN(std::vector<Value> items, iterate(budget_, value));
    if (items.size() != target.parts.size()) {
      return fail(ErrorCode::bad_input, fmt::format("{} values cannot be unpacked into {} names",
                                                    items.size(), target.parts.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) HEXLM_TRY(assign(target.parts[i], std::move(items[i])));
    return {};
  }
  if (target.attribute.empty()) {
    budget_.spend(scope_->variables.size() / names_per_step);
    scope_->set(target.name, std::move(value));
    return {};
  }
  const Value object = resolve(target.name);
  auto* space = dynamic_cast<Namespace*>(object.as_object());
  if (space == nullptr) {
    return fail(ErrorCode::bad_input,
                fmt::format("'{}' is no namespace, so that its attribute '{}' cannot be set", target.name,
                            target.attribute));
  }
  budget_.spend(space->attributes().size() / names_per_step);
  space->set(target.attribute, std::move(value));
  return {};
}

Result<Interpreter::Flow> Interpreter::run(const Set& node) {
  HEXLM_ASSIGN(Value value, evaluate(*node.value));
  HEXLM_TRY(assign(node.target, std::move(value)));
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::run(const SetBlock& node) {
  begin_buffer();
  Flow flow = Flow::normal;
  {
    const ScopeChange change(scope_, block_scope(scope_, node.hidden));
    HEXLM_ASSIGN(flow, execute(node.body));
  }
  Value text = end_buffer();
  // A loop left from within the block leaves the name as it was.
  if (flow != Flow::normal) return flow;
  HEXLM_ASSIGN(Value value, apply(node.filters, std::move(text)));
  HEXLM_TRY(assign(node.target, std::move(value)));
  return Flow::normal;
}

Value Interpreter::capture(const MacroDefinition& macro) {
  if (!scope_->captured) captured_scopes_.push_back(scope_);
  scope_->captured = true;
  budget_.hold(kept_bytes);
  return Value::object(std::make_shared<Macro>(macro, scope_));
}

Result<Interpreter::Flow> Interpreter::run(const MacroDefinition& node) {
  scope_->set(node.name, capture(node));
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::run(const CallBlock& node) {
  const auto& call_node = std::get<CallExpression>(node.call->form);
  HEXLM_ASSIGN(const Value callee, evaluate(*call_node.callee));
  HEXLM_ASSIGN(Arguments arguments, evaluate(call_node.arguments));
  arguments.keyword.emplace_back("caller", capture(*node.caller));
  HEXLM_ASSIGN(const Value text, call(callee, std::move(arguments)));
  write(to_text(budget_, text));
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::run(const FilterBlock& node) {
  begin_buffer();
  Flow flow = Flow::normal;
  {
    const ScopeChange change(scope_, block_scope(scope_, node.hidden));
    HEXLM_ASSIGN(flow, execute(node.body));
  }
  Value text = end_buffer();
  if (flow != Flow::normal) return flow;
  HEXLM_ASSIGN(const Value value, apply(node.filters, std::move(text)));
  write(to_text(budget_, value));
  return Flow::normal;
}

Result<Interpreter::Flow> Interpreter::run(const With& node) {
  auto scope = block_scope(scope_, node.hidden);
  for (const auto& [target, expression] : node.assignments) {
    // Values are those of the scope around, not of earlier assignments.
    HEXLM_ASSIGN(Value value, evaluate(*expression));
    const ScopeChange change(scope_, scope);
    HEXLM_TRY(assign(target, std::move(value)));
  }
  const ScopeChange change(scope_, std::move(scope));
  return execute(node.body);
}

Result<Interpreter::Flow> Interpreter::run(const Generation& node) {
  const ScopeChange change(scope_, block_scope(scope_, node.hidden));
  return execute(node.body);
}

Status Interpreter::bind_keywords(const MacroDefinition& macro, Arguments& arguments) {
  Mapping::Entries rest;
  std::optional<Value> caller;
  for (auto& [name, value] : arguments.keyword) {
    if (!budget_.spend(macro.parameters.size() / names_per_step)) break;
    size_t index = 0;
    while (index < macro.parameters.size() && macro.parameters[index] != name) ++index;
    if (index < macro.parameters.size()) {
      if (index < arguments.positional.size()) {
        return fail(ErrorCode::bad_input,
                    fmt::format("macro '{}' got its parameter '{}' twice", macro.name, name));
      }
      scope_->set(macro.parameters[index], std::move(value));
    } else if (name == "caller" && macro.uses_caller) {
      caller = std::move(value);
    } else if (macro.uses_kwargs) {
      rest.emplace_back(make_text(&budget_, name), std::move(value));
    } else {
      return fail(ErrorCode::bad_input, fmt::format("macro '{}' has no parameter '{}'", macro.name, name));
    }
  }
  if (macro.uses_caller && scope_->find("caller") == nullptr) {
    scope_->set("caller", caller ? *std::move(caller) : Value::undefined(&budget_, "no caller is defined"));
  }
  if (macro.uses_kwargs) scope_->set("kwargs", make_mapping(&budget_, std::move(rest)));
  return {};
}

Status Interpreter::bind_parameters(const MacroDefinition& macro, Arguments& arguments) {
  const size_t parameters = macro.parameters.size();
  std::vector<Value> extra;
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < parameters) {
      scope_->set(macro.parameters[i], std::move(arguments.positional[i]));
    } else {
      extra.push_back(std::move(arguments.positional[i]));
    }
  }
  if (!extra.empty() && !macro.uses_varargs) {
    return fail(ErrorCode::bad_input, fmt::format("macro '{}' takes at most {} arguments, not {}", macro.name,
                                                  parameters, arguments.positional.size()));
  }
  if (macro.uses_varargs)
    scope_->set("varargs", make_sequence(&budget_, std::move(extra), Sequence::Kind::tuple));
  return bind_keywords(macro, arguments);
}

Status Interpreter::set_defaults(const MacroDefinition& macro) {
  const size_t without_default = macro.parameters.size() - macro.defaults.size();
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const std::string& name = macro.parameters[i];
    if (scope_->find(name) != nullptr) continue;
    if (i < without_default) {
      scope_->set(name, Value::undefined(&budget_,
                                         fmt::format("parameter {} was not provided", represent_name(name))));
    } else {
      HEXLM_ASSIGN(Value value, evaluate(*macro.defaults[i - without_default]));
      scope_->set(name, std::move(value));
    }
  }
  return {};
}

Result<Value> Interpreter::call_macro(const MacroDefinition& macro, const std::shared_ptr<Scope>& scope,
                                      Arguments arguments) {
  const ScopeChange change(scope_, block_scope(scope, macro.hidden));
  HEXLM_TRY(bind_parameters(macro, arguments));
  HEXLM_TRY(set_defaults(macro));
  begin_buffer();
  HEXLM_TRY(execute(macro.body));
  return end_buffer();
}

}  // namespace hexlm::jinja
