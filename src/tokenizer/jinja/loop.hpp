#pragma once

#include <memory>
#include <vector>

#include "tokenizer/jinja/ast.hpp"
#include "tokenizer/jinja/object.hpp"

namespace hexlm::jinja {

struct Scope;

/// The variable `loop` of one running loop, and its items. The loop's condition is evaluated as late as Jinja
/// does: for the next item when that is due or asked for, for all when their number is.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  /// `scope` is the one around the loop. `depth` counts recursive calls from 0.
  Loop(Interpreter& interpreter, const For& node, std::shared_ptr<Scope> scope, std::vector<Value> items,
       int64_t depth);

  /// Whether there is an item `index`. Errors: those of the condition.
  Result<bool> has(size_t index);
  /// Moves to item `index`, which must be there, and returns it.
  const Value& move_to(size_t index);
  /// Drops the scope: a loop that is not recursive no longer needs it when it has run.
  void finish() { scope_.reset(); }

  std::string_view type_name() const override { return "LoopContext"; }
  Result<std::optional<Value>> attribute(Budget& budget, std::string_view name) override;
  bool callable() const override { return node_.recursive; }
  Result<Value> call(Interpreter& interpreter, Arguments&& arguments) override;
  int depth() const override { return container_depth_; }
  void clear() override;

  Result<Value> cycle(const Arguments& arguments) const;
  /// Whether the arguments differ from those of the last call.
  Result<Value> changed(const Arguments& arguments);

 private:
  Result<size_t> length();
  std::optional<Value> method(std::string_view name);

  Interpreter& interpreter_;
  const For& node_;
  std::shared_ptr<Scope> scope_;
  /// All items; the first `accepted_` are those that passed, those from `pending_` on are not tested yet.
  std::vector<Value> items_;
  size_t accepted_ = 0;
  size_t pending_ = 0;
  size_t index_ = 0;
  int64_t depth_;
  int container_depth_ = 1;
  std::optional<std::vector<Value>> last_;
  bool kept_ = false;
  Hold hold_;
};

/// A macro with the scope that it was defined in.
class Macro : public Object {
 public:
  Macro(const MacroDefinition& definition, std::shared_ptr<Scope> scope)
      : definition_(definition), scope_(std::move(scope)) {}
  std::string_view type_name() const override { return "Macro"; }
  Result<std::optional<Value>> attribute(Budget& budget, std::string_view name) override;
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interpreter, Arguments&& arguments) override;

 private:
  const MacroDefinition& definition_;
  std::shared_ptr<Scope> scope_;
};

}  // namespace hexlm::jinja
