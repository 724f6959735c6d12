#include "tokenizer/jinja/symbols.hpp"

#include <array>
#include <fmt/format.h>
#include <map>
#include <set>

#include "tokenizer/jinja/ast_children.hpp"
#include "tokenizer/jinja/represent.hpp"

namespace hexlm::jinja {
namespace {

/// The names of one block, in the terms of Jinja's compiler.
class Symbols {
 public:
  explicit Symbols(const Symbols* outer) : outer_(outer) {}
  /// A branch of the same block, which sees what the block has noted before it.
  static Symbols branch_of(const Symbols& block) {
    Symbols branch(block.outer_);
    branch.before_ = &block;
    return branch;
  }

  void load(const std::string& name) {
    if (!knows(name)) hidden_[name] = false;
  }
  void declare(const std::string& name) { hidden_[name] = false; }
  void store(const std::string& name) {
    stores_.insert(name);
    if (!knows_here(name)) hidden_[name] = outer_ == nullptr || !outer_->knows(name);
  }

  /// Joins what the three parts of an `if` do: its body, all of its `elif`, its `else`.
  void join(const std::array<Symbols, 3>& branches) {
    std::map<std::string, size_t> counts;
    for (const Symbols& branch : branches) {
      for (const std::string& name : branch.stores_) {
        if (!stores_here(name)) ++counts[name];
      }
    }
    for (const Symbols& branch : branches) {
      for (const auto& [name, hidden] : branch.hidden_) hidden_[name] = hidden;
      stores_.insert(branch.stores_.begin(), branch.stores_.end());
    }
    for (const auto& [name, count] : counts) {
      if (count < branches.size()) hidden_[name] = false;
    }
  }

  HiddenNames hidden_names() const {
    HiddenNames names;
    for (const auto& [name, hidden] : hidden_) {
      if (hidden)
        names.emplace_back(name,
                           Value::undefined(nullptr, fmt::format("{} is undefined", represent_name(name))));
    }
    return names;
  }

 private:
  bool knows_here(const std::string& name) const {
    return hidden_.contains(name) || (before_ != nullptr && before_->knows_here(name));
  }
  bool knows(const std::string& name) const {
    return knows_here(name) || (outer_ != nullptr && outer_->knows(name));
  }
  bool stores_here(const std::string& name) const {
    return stores_.contains(name) || (before_ != nullptr && before_->stores_here(name));
  }

  const Symbols* outer_;
  const Symbols* before_ = nullptr;
  /// Every name that the block reads, assigns or declares, and whether it starts out undefined.
  std::map<std::string, bool> hidden_;
  std::set<std::string> stores_;
};

void load_names(Symbols& symbols, const Expression& expression) {
  if (const auto* name = std::get_if<Name>(&expression.form)) symbols.load(name->name);
  std::visit(
      [&](const auto& form) {
        visit_children(form, [&](const Expression& child) { load_names(symbols, child); });
      },
      expression.form);
}

void load_names(Symbols& symbols, const std::vector<FilterExpression>& filters) {
  for (const FilterExpression& filter : filters) {
    visit_children(filter, [&](const Expression& child) { load_names(symbols, child); });
  }
}

void store_target(Symbols& symbols, const Target& target) {
  for (const Target& part : target.parts) store_target(symbols, part);
  if (target.unpacks) return;
  target.attribute.empty() ? symbols.store(target.name) : symbols.load(target.name);
}

void declare_target(Symbols& symbols, const Target& target) {
  for (const Target& part : target.parts) declare_target(symbols, part);
  if (!target.unpacks) symbols.declare(target.name);
}

void note(Symbols& symbols, const Body& body);

/// What a statement reads and assigns in the block that it stands in; blocks of its own do not count.
class StatementNames {
 public:
  explicit StatementNames(Symbols& symbols) : symbols_(symbols) {}

  void operator()(const Print& node) { load_names(symbols_, *node.value); }
  void operator()(const For& node) { load_names(symbols_, *node.iterable); }
  void operator()(const Set& node) {
    load_names(symbols_, *node.value);
    store_target(symbols_, node.target);
  }
  void operator()(const SetBlock& node) { store_target(symbols_, node.target); }
  void operator()(const MacroDefinition& node) { symbols_.store(node.name); }
  void operator()(const CallBlock& node) { load_names(symbols_, *node.call); }
  void operator()(const FilterBlock& node) { load_names(symbols_, node.filters); }
  void operator()(const With& node) {
    for (const auto& [target, value] : node.assignments) load_names(symbols_, *value);
  }
  void operator()(const If& node) {
    load_names(symbols_, *node.branches[0].first);
    std::array<Symbols, 3> branches = {Symbols::branch_of(symbols_), Symbols::branch_of(symbols_),
                                       Symbols::branch_of(symbols_)};
    note(branches[0], node.branches[0].second);
    for (size_t i = 1; i < node.branches.size(); ++i) note_elif(branches[1], node.branches[i]);
    note(branches[2], node.otherwise);
    symbols_.join(branches);
  }
  template <class Other>
  void operator()(const Other&) {}

 private:
  static void note_elif(Symbols& symbols, const std::pair<ExpressionPtr, Body>& branch) {
    load_names(symbols, *branch.first);
    std::array<Symbols, 3> branches = {Symbols::branch_of(symbols), Symbols::branch_of(symbols),
                                       Symbols::branch_of(symbols)};
    note(branches[0], branch.second);
    symbols.join(branches);
  }

  Symbols& symbols_;
};

void note(Symbols& symbols, const Body& body) {
  for (const Statement& statement : body) std::visit(StatementNames(symbols), statement.form);
}

/// Fills the hidden names of the blocks that stand in a block with these symbols.
class InnerBlocks {
 public:
  explicit InnerBlocks(const Symbols& symbols) : symbols_(symbols) {}

  void fill(Body& body) {
    for (Statement& statement : body) std::visit(*this, statement.form);
  }

  void operator()(If& node) {
    for (auto& [condition, body] : node.branches) fill(body);
    fill(node.otherwise);
  }
  void operator()(For& node) {
    Symbols body(&symbols_);
    declare_target(body, node.target);
    body.declare("loop");
    finish(body, node.body, node.hidden);
    finish(Symbols(&symbols_), node.otherwise, node.hidden_otherwise);
  }
  void operator()(SetBlock& node) { finish(Symbols(&symbols_), node.body, node.hidden); }
  void operator()(MacroDefinition& node) {
    Symbols body(&symbols_);
    for (const std::string& parameter : node.parameters) body.declare(parameter);
    if (node.uses_caller) body.declare("caller");
    if (node.uses_kwargs) body.declare("kwargs");
    if (node.uses_varargs) body.declare("varargs");
    for (const ExpressionPtr& value : node.defaults) load_names(body, *value);
    finish(body, node.body, node.hidden);
  }
  void operator()(CallBlock& node) { (*this)(*node.caller); }
  void operator()(FilterBlock& node) {
    Symbols body(&symbols_);
    load_names(body, node.filters);
    finish(body, node.body, node.hidden);
  }
  void operator()(With& node) {
    Symbols body(&symbols_);
    for (const auto& [target, value] : node.assignments) declare_target(body, target);
    finish(body, node.body, node.hidden);
  }
  void operator()(Generation& node) { finish(Symbols(&symbols_), node.body, node.hidden); }
  template <class Other>
  void operator()(Other&) {}

 private:
  static void finish(Symbols symbols, Body& body, HiddenNames& hidden) {
    note(symbols, body);
    hidden = symbols.hidden_names();
    InnerBlocks(symbols).fill(body);
  }

  const Symbols& symbols_;
};

}  // namespace

HiddenNames find_hidden_names(Body& body) {
  Symbols symbols(nullptr);
  note(symbols, body);
  InnerBlocks(symbols).fill(body);
  return symbols.hidden_names();
}

}  // namespace hexlm::jinja
