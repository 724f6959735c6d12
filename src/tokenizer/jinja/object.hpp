#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/value.hpp"

namespace hexlm::jinja {

class Interpreter;

/// What a call passes: positional arguments, then keyword arguments in order.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

/// A value that is neither data nor text: namespaces, functions, methods, macros, `loop`.
class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  virtual std::string_view type_name() const = 0;
  /// The attribute of this name; none if there is no such attribute.
  virtual Result<std::optional<Value>> attribute(Budget& budget, std::string_view name);
  virtual bool callable() const { return false; }
  virtual Result<Value> call(Interpreter& interpreter, Arguments&& arguments);
  /// Levels of containers held, so that destroying a value never recurses deeper than the limit. Objects
  /// that the interpreter keeps alive until the rendering ends hold nothing in this sense.
  virtual int depth() const { return 1; }
  /// Drops what the object refers to; called when a rendering ends, since references may be circular.
  virtual void clear() {}
};

/// Errors: none; nesting above the limit exhausts the budget and yields none.
Value make_object(Budget& budget, std::shared_ptr<Object> object);

/// `namespace(…)`: the one value whose attributes `set` may change.
class Namespace : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  Result<std::optional<Value>> attribute(Budget& budget, std::string_view name) override;
  void set(std::string_view name, Value value);
  const std::vector<std::pair<std::string, Value>>& attributes() const { return attributes_; }
  void clear() override { attributes_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

/// A function of the environment (`range`, `raise_exception`, …).
class Function : public Object {
 public:
  using Body = Result<Value> (*)(Interpreter& interpreter, const Arguments& arguments);
  explicit Function(Body body) : body_(body) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interpreter, Arguments&& arguments) override;

 private:
  Body body_;
};

/// A method of a text or container, with the value it belongs to.
class BoundMethod : public Object {
 public:
  using Body = Result<Value> (*)(Budget& budget, const Value& self, const Arguments& arguments);
  BoundMethod(Budget& budget, Value self, Body body)
      : self_(std::move(self)), body_(body), hold_(&budget, sizeof(BoundMethod)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interpreter, Arguments&& arguments) override;
  int depth() const override { return self_.depth() + 1; }

 private:
  Value self_;
  Body body_;
  Hold hold_;
};

}  // namespace hexlm::jinja
