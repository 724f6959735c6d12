#include "tokenizer/jinja/loop.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "tokenizer/jinja/arguments.hpp"
#include "tokenizer/jinja/interpreter.hpp"
#include "tokenizer/jinja/operators.hpp"

namespace hexlm::jinja {
namespace {

/// A method of a loop.
class LoopMethod : public Object {
 public:
  using Body = Result<Value> (*)(Loop& loop, const Arguments& arguments);
  LoopMethod(Budget& budget, std::shared_ptr<Loop> loop, Body body)
      : loop_(std::move(loop)), body_(body), hold_(&budget, sizeof(LoopMethod)) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Result<Value> call(Interpreter&, Arguments&& arguments) override { return body_(*loop_, arguments); }
  int depth() const override { return loop_->depth() + 1; }

 private:
  std::shared_ptr<Loop> loop_;
  Body body_;
  Hold hold_;
};

std::optional<Value> count(size_t number) { return Value::integer(static_cast<int64_t>(number)); }

}  // namespace

Loop::Loop(Interpreter& interpreter, const For& node, std::shared_ptr<Scope> scope, std::vector<Value> items,
           int64_t depth)
    : interpreter_(interpreter),
      node_(node),
      scope_(std::move(scope)),
      items_(std::move(items)),
      depth_(depth),
      hold_(&interpreter.budget(), sizeof(Loop) + items_.capacity() * sizeof(Value)) {
  for (const Value& item : items_) container_depth_ = std::max(container_depth_, item.depth() + 1);
  if (node_.condition == nullptr) accepted_ = pending_ = items_.size();
}

Result<bool> Loop::has(size_t index) {
  while (accepted_ <= index && pending_ < items_.size()) {
    // A loop that ended early has lost its scope, and nobody is to visit its other items.
    if (scope_ == nullptr) return false;
    const size_t candidate = pending_++;
    HEXLM_ASSIGN(const bool passes, interpreter_.passes(node_, scope_, items_[candidate]));
    if (passes) std::swap(items_[accepted_++], items_[candidate]);
  }
  return index < accepted_;
}

const Value& Loop::move_to(size_t index) {
  index_ = index;
  return items_[index];
}

Result<size_t> Loop::length() {
  HEXLM_TRY(has(items_.size()));
  return accepted_;
}

Result<std::optional<Value>> Loop::attribute(Budget& budget, std::string_view name) {
  if (name == "index") return count(index_ + 1);
  if (name == "index0") return count(index_);
  if (name == "first") return std::optional<Value>(Value::boolean(index_ == 0));
  if (name == "depth") return std::optional<Value>(Value::integer(depth_ + 1));
  if (name == "depth0") return std::optional<Value>(Value::integer(depth_));
  if (name == "previtem") {
    return std::optional<Value>(index_ == 0 ? Value::undefined(&budget, "there is no previous item")
                                            : items_[index_ - 1]);
  }
  if (name == "last" || name == "nextitem") {
    HEXLM_ASSIGN(const bool more, has(index_ + 1));
    if (name == "last") return std::optional<Value>(Value::boolean(!more));
    return std::optional<Value>(more ? items_[index_ + 1]
                                     : Value::undefined(&budget, "there is no next item"));
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    HEXLM_ASSIGN(const size_t total, length());
    return count(name == "length" ? total : total - index_ - (name == "revindex0" ? 1 : 0));
  }
  return method(name);
}

std::optional<Value> Loop::method(std::string_view name) {
  LoopMethod::Body body = nullptr;
  if (name == "cycle") body = [](Loop& loop, const Arguments& arguments) { return loop.cycle(arguments); };
  if (name == "changed")
    body = [](Loop& loop, const Arguments& arguments) { return loop.changed(arguments); };
  if (body == nullptr) return std::nullopt;
  return make_object(interpreter_.budget(),
                     std::make_shared<LoopMethod>(interpreter_.budget(), shared_from_this(), body));
}

Result<Value> Loop::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) return fail(ErrorCode::bad_input, "loop.cycle got no values");
  return arguments.positional[index_ % arguments.positional.size()];
}

Result<Value> Loop::changed(const Arguments& arguments) {
  const auto& values = arguments.positional;
  bool same = last_.has_value() && last_->size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i)
    same = is_equal(interpreter_.budget(), (*last_)[i], values[i]);
  if (!same) last_ = values;
  // What it remembers may refer back to this loop.
  if (!kept_) interpreter_.keep(shared_from_this());
  kept_ = true;
  return Value::boolean(!same);
}

Result<Value> Loop::call(Interpreter& interpreter, Arguments&& arguments) {
  if (!node_.recursive || scope_ == nullptr) {
    return fail(ErrorCode::bad_input, "only a running loop marked 'recursive' can be called");
  }
  HEXLM_ASSIGN(const Bound bound, Bound::bind("loop", arguments, {"iterable"}, 1));
  return interpreter.call_loop(node_, scope_, *bound[0], depth_ + 1);
}

void Loop::clear() {
  last_.reset();
  scope_.reset();
}

Result<std::optional<Value>> Macro::attribute(Budget& budget, std::string_view name) {
  if (name == "name") return std::optional<Value>(make_text(&budget, definition_.name));
  return std::optional<Value>();
}

Result<Value> Macro::call(Interpreter& interpreter, Arguments&& arguments) {
  return interpreter.call_macro(definition_, scope_, std::move(arguments));
}

}  // namespace hexlm::jinja
