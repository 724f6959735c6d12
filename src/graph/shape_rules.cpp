#include "graph/shape_rules.hpp"

#include <cmath>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "base/text.hpp"

namespace hexlm {
namespace {

/// −1 when the product does not fit, so that it equals no dimension.
int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? -1 : result;
}

int64_t sum(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? -1 : result;
}

/// How often each symbol occurs and the product of the constants: equal for shapes with as many elements.
struct ElementCount {
  int64_t constant = 1;
  std::map<Symbol, int> symbols;
  bool operator==(const ElementCount&) const = default;
};

ElementCount count_elements(const Shape& shape) {
  ElementCount count;
  for (const Dim& dim : shape) {
    count.constant = product(count.constant, dim.value);
    if (dim.symbol != Symbol::none) ++count.symbols[dim.symbol];
  }
  return count;
}

std::string range_text(size_t least, size_t most) {
  return least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
}

std::string describe(const Value& value) {
  return fmt::format("{} {}", to_string(value.dtype), to_string(value.shape));
}

/// One overload an op. Each returns the output's shape; the first broken rule sets `message`, and the shape
/// then means nothing.
class ShapeRules {
 public:
  explicit ShapeRules(const Operands& operands) : operands_(operands) {}
  const std::string& message() const { return message_; }

  Shape operator()(const op::Embedding&) {
    if (!arity(1, 1, 1, false) || !input_rank(0, DType::i32, 1) || !parameter_rank(0, 2)) return {};
    Shape shape = input(0).shape;
    shape.push_back(dim(operands_.parameters[0]->shape[1]));
    return shape;
  }

  Shape operator()(const op::Linear&) {
    if (!arity(1, 1, 2, false) || !input_rank(0, DType::f32, 1) || !last_is_constant(0) ||
        !matrix(0, last(0))) {
      return {};
    }
    const int64_t outputs = operands_.parameters[0]->shape[0];
    if (operands_.parameters.size() == 2 && !parameter(1, {outputs})) return {};
    return with_last(0, outputs);
  }

  Shape operator()(const op::RmsNorm& op) {
    if (!arity(1, 1, 1, false) || !input_rank(0, DType::f32, 1) || !last_is_constant(0)) return {};
    if (!positive("epsilon", op.epsilon) || !parameter(0, {last(0)})) return {};
    require(std::isfinite(op.weight_offset), "expected a finite weight_offset, got {}", op.weight_offset);
    return input(0).shape;
  }

  Shape operator()(const op::GatedRmsNorm& op) {
    if (!arity(2, 1, 1, false) || !input_rank(0, DType::f32, 1) || !last_is_constant(0)) return {};
    if (!positive("epsilon", op.epsilon) || !same_as_first(1) || !parameter(0, {last(0)})) return {};
    return input(0).shape;
  }

  Shape operator()(const op::Reshape& op) {
    if (!arity(1, 0, 0, false) || !input_rank(0, DType::f32, 1)) return {};
    for (const Dim& dim : op.shape) {
      if (!require(dim.value > 0, "expected positive dimensions, got {}", to_string(op.shape))) return {};
    }
    require(!op.shape.empty() && count_elements(op.shape) == count_elements(input(0).shape),
            "expected a shape with the elements of {}, got {}", to_string(input(0).shape),
            to_string(op.shape));
    return op.shape;
  }

  Shape operator()(const op::Slice& op) {
    if (!arity(1, 0, 0, false) || !input_rank(0, DType::f32, 1) || !last_is_constant(0)) return {};
    if (!require(op.begin >= 0 && op.begin < op.end && op.end <= last(0),
                 "expected 0 <= begin < end <= {}, got begin {} end {}", last(0), op.begin, op.end)) {
      return {};
    }
    return with_last(0, op.end - op.begin);
  }

  Shape operator()(const op::Rope& op) {
    if (!arity(2, 0, 0, false) || !input_shape_rank(0, 3) || !last_is_constant(0)) return {};
    if (!input_is(1, DType::i32, {dim(3), input(0).shape[0]})) return {};
    if (!require(op.rotary_dim > 0 && op.rotary_dim % 2 == 0 && op.rotary_dim <= last(0),
                 "expected an even rotary_dim of 2 to {}, got {}", last(0), op.rotary_dim)) {
      return {};
    }
    const size_t pairs = static_cast<size_t>(op.rotary_dim) / 2;
    if (!require(op.inverse_frequencies.size() == pairs && op.stream.size() == pairs,
                 "expected {} inverse frequencies and position streams, got {} and {}", pairs,
                 op.inverse_frequencies.size(), op.stream.size())) {
      return {};
    }
    for (size_t i = 0; i < pairs; ++i) {
      if (!require(std::isfinite(op.inverse_frequencies[i]) && op.stream[i] < 3,
                   "expected a finite frequency and a stream of 0 to 2 at {}, got {} and {}", i,
                   op.inverse_frequencies[i], op.stream[i])) {
        return {};
      }
    }
    if (!positive("attention_factor", op.attention_factor)) return {};
    return input(0).shape;
  }

  Shape operator()(const op::Attention& op) {
    if (!arity(3, 0, 0, true) || !input_shape_rank(0, 3)) return {};
    if (!require(op.key_value_heads > 0 && op.query_heads > 0 && op.query_heads % op.key_value_heads == 0,
                 "expected query_heads to be a multiple of key_value_heads, got {} and {}", op.query_heads,
                 op.key_value_heads)) {
      return {};
    }
    const Dim tokens = input(0).shape[0];
    const Shape key_value = {tokens, dim(op.key_value_heads), dim(op.head_dim)};
    if (!positive("scale", op.scale) ||
        !input_is(0, DType::f32, {tokens, dim(op.query_heads), dim(op.head_dim)}) ||
        !input_is(1, DType::f32, key_value) || !input_is(2, DType::f32, key_value) ||
        !state_is(State::Kind::key_value_cache, {op.key_value_heads, op.head_dim})) {
      return {};
    }
    return {tokens, dim(product(op.query_heads, op.head_dim))};
  }

  Shape operator()(const op::Add&) { return elementwise_pair(); }
  Shape operator()(const op::SiluMultiply&) { return elementwise_pair(); }
  Shape operator()(const op::SigmoidMultiply&) { return elementwise_pair(); }

  Shape operator()(const op::CausalConvolution& op) {
    if (!arity(1, 1, 1, true) || !input_shape_rank(0, 2) || !last_is_constant(0)) return {};
    if (!require(op.taps >= 2, "expected at least 2 taps, got {}", op.taps)) return {};
    if (!parameter(0, {last(0), 1, op.taps}) || !state_is(State::Kind::convolution, {last(0), op.taps - 1})) {
      return {};
    }
    return input(0).shape;
  }

  Shape operator()(const op::GatedDeltaNet& op) {
    if (!arity(3, 2, 2, true) || !input_shape_rank(0, 2)) return {};
    if (!require(op.key_heads > 0 && op.value_heads > 0 && op.key_dim > 0 && op.value_dim > 0 &&
                     op.value_heads % op.key_heads == 0,
                 "expected positive sizes and value_heads a multiple of key_heads, got key_heads {} "
                 "value_heads {} key_dim {} value_dim {}",
                 op.key_heads, op.value_heads, op.key_dim, op.value_dim)) {
      return {};
    }
    const Dim tokens = input(0).shape[0];
    const int64_t value_width = product(op.value_heads, op.value_dim);
    const int64_t channels = sum(product(2, product(op.key_heads, op.key_dim)), value_width);
    const Shape gate = {tokens, dim(op.value_heads)};
    if (!positive("norm_epsilon", op.norm_epsilon) || !input_is(0, DType::f32, {tokens, dim(channels)}) ||
        !input_is(1, DType::f32, gate) || !input_is(2, DType::f32, gate) || !parameter(0, {op.value_heads}) ||
        !parameter(1, {op.value_heads}) ||
        !state_is(State::Kind::delta_net, {op.value_heads, op.key_dim, op.value_dim})) {
      return {};
    }
    return {tokens, dim(value_width)};
  }

  Shape operator()(const op::MixtureOfExperts& op) {
    if (!require(op.experts > 0 && op.top_k > 0 && op.top_k <= op.experts && op.intermediate > 0,
                 "expected experts > 0, 0 < top_k <= experts and intermediate > 0, got {}, {} and {}",
                 op.experts, op.top_k, op.intermediate)) {
      return {};
    }
    const auto matrices = static_cast<size_t>(product(3, op.experts));
    if (!arity(2, matrices, matrices, false) || !input_shape_rank(0, 2) || !last_is_constant(0)) return {};
    if (!input_is(1, DType::f32, {input(0).shape[0], dim(op.experts)})) return {};
    const int64_t hidden = last(0);
    for (size_t first = 0; first < matrices; first += 3) {
      if (!parameter(first, {op.intermediate, hidden}) || !parameter(first + 1, {op.intermediate, hidden}) ||
          !parameter(first + 2, {hidden, op.intermediate})) {
        return {};
      }
    }
    return input(0).shape;
  }

  Shape operator()(const op::GatherRows&) {
    if (!arity(2, 0, 0, false) || !input_shape_rank(0, 2) || !input_rank(1, DType::i32, 1)) return {};
    if (!input_is(1, DType::i32, {input(1).shape[0]})) return {};
    return {input(1).shape[0], input(0).shape[1]};
  }

  Shape operator()(const op::ReplaceRows&) { return rows_by_index(); }
  Shape operator()(const op::AddRows&) { return rows_by_index(); }

  Shape operator()(const op::LayerNorm& op) {
    if (!arity(1, 2, 2, false) || !input_rank(0, DType::f32, 1) || !last_is_constant(0)) return {};
    if (!positive("epsilon", op.epsilon) || !parameter(0, {last(0)}) || !parameter(1, {last(0)})) return {};
    return input(0).shape;
  }

  Shape operator()(const op::Gelu&) {
    if (!arity(1, 0, 0, false) || !input_rank(0, DType::f32, 1)) return {};
    return input(0).shape;
  }

  Shape operator()(const op::InterpolateRows&) {
    if (!arity(2, 1, 1, false) || !input_rank(0, DType::i32, 2) || !parameter_rank(0, 2)) return {};
    const Shape& index = input(0).shape;
    if (!require(index.size() == 2 && index[0].symbol == Symbol::none,
                 "input 0 '{}': expected I32 [taps, rows], got {}", input(0).name, describe(input(0)))) {
      return {};
    }
    if (!input_is(1, DType::f32, index)) return {};
    return {index[1], dim(operands_.parameters[0]->shape[1])};
  }

  Shape operator()(const op::PatchAttention& op) {
    if (!arity(4, 0, 0, false) || !input_shape_rank(0, 2)) return {};
    if (!require(op.heads > 0 && op.head_dim > 0 && op.head_dim % 2 == 0,
                 "expected heads > 0 and an even head_dim, got {} and {}", op.heads, op.head_dim) ||
        !positive("scale", op.scale)) {
      return {};
    }
    const Dim rows = input(0).shape[0];
    const int64_t width = product(op.heads, op.head_dim);
    const Shape angles = {rows, dim(op.head_dim / 2)};
    if (!input_is(0, DType::f32, {rows, dim(product(3, width))}) || !input_is(1, DType::f32, angles) ||
        !input_is(2, DType::f32, angles) || !input_is(3, DType::i32, {dim(2), rows})) {
      return {};
    }
    return {rows, dim(width)};
  }

 private:
  const Value& input(size_t i) const { return *operands_.inputs[i]; }
  int64_t last(size_t i) const { return input(i).shape.back().value; }
  Shape with_last(size_t i, int64_t size) const {
    Shape shape = input(i).shape;
    shape.back() = dim(size);
    return shape;
  }

  /// Remembers the first complaint and returns false.
  template <class... Args>
  bool reject(fmt::format_string<Args...> format, Args&&... args) {
    if (message_.empty()) message_ = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  /// Formats only when it must: a rope has thousands of frequencies to check.
  template <class... Args>
  bool require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
    return ok || reject(format, std::forward<Args>(args)...);
  }

  bool arity(size_t inputs, size_t least_parameters, size_t most_parameters, bool state) {
    const size_t parameters = operands_.parameters.size();
    return require(operands_.inputs.size() == inputs, "expected {} inputs, got {}", inputs,
                   operands_.inputs.size()) &&
           ((parameters >= least_parameters && parameters <= most_parameters) ||
            reject("expected {} parameters, got {}", range_text(least_parameters, most_parameters),
                   parameters)) &&
           (state == (operands_.state != nullptr) ||
            reject("expected {}", state ? "a state, got none" : "no state, got one"));
  }

  bool input_rank(size_t i, DType dtype, size_t least_rank) {
    return (input(i).dtype == dtype && input(i).shape.size() >= least_rank) ||
           reject("input {} '{}': expected {} of at least {} dimensions, got {}", i, input(i).name,
                  to_string(dtype), least_rank, describe(input(i)));
  }

  bool input_shape_rank(size_t i, size_t rank) {
    return (input(i).dtype == DType::f32 && input(i).shape.size() == rank) ||
           reject("input {} '{}': expected F32 of {} dimensions, got {}", i, input(i).name, rank,
                  describe(input(i)));
  }

  bool last_is_constant(size_t i) {
    return input(i).shape.back().symbol == Symbol::none ||
           reject("input {} '{}': expected a constant last dimension, got {}", i, input(i).name,
                  describe(input(i)));
  }

  bool input_is(size_t i, DType dtype, const Shape& shape) {
    return (input(i).dtype == dtype && input(i).shape == shape) ||
           reject("input {} '{}': expected {} {}, got {}", i, input(i).name, to_string(dtype),
                  to_string(shape), describe(input(i)));
  }

  bool same_as_first(size_t i) { return input_is(i, DType::f32, input(0).shape); }

  bool parameter_rank(size_t i, size_t rank) {
    const Parameter& parameter = *operands_.parameters[i];
    return parameter.shape.size() == rank || reject("parameter '{}': expected {} dimensions, got {}",
                                                    parameter.name, rank, format_shape(parameter.shape));
  }

  bool parameter(size_t i, const std::vector<int64_t>& shape) {
    const Parameter& parameter = *operands_.parameters[i];
    return parameter.shape == shape || reject("parameter '{}': expected {}, got {}", parameter.name,
                                              format_shape(shape), format_shape(parameter.shape));
  }

  /// A parameter of at least two dimensions, the first its rows, the others together `columns`.
  bool matrix(size_t i, int64_t columns) {
    const std::vector<int64_t>& shape = operands_.parameters[i]->shape;
    if (shape.size() < 2) return parameter_rank(i, 2);
    if (shape.size() == 2) return parameter(i, {shape[0], columns});
    int64_t elements = 1;
    for (size_t d = 1; d < shape.size(); ++d) elements = product(elements, shape[d]);
    return require(elements == columns, "parameter '{}': expected rows of {} elements, got {}",
                   operands_.parameters[i]->name, columns, format_shape(shape));
  }

  bool state_is(State::Kind kind, const std::vector<int64_t>& dims) {
    const State& state = *operands_.state;
    return (state.kind == kind && state.dims == dims) ||
           reject("state '{}': expected {} {}, got {} {}", state.name, to_string(kind), format_shape(dims),
                  to_string(state.kind), format_shape(state.dims));
  }

  bool positive(const char* attribute, float value) {
    return (std::isfinite(value) && value > 0) || reject("expected a positive {}, got {}", attribute, value);
  }

  Shape rows_by_index() {
    if (!arity(3, 0, 0, false) || !input_shape_rank(0, 2) || !input_shape_rank(1, 2) ||
        !last_is_constant(0)) {
      return {};
    }
    if (!input_is(1, DType::f32, {input(1).shape[0], input(0).shape[1]}) ||
        !input_is(2, DType::i32, {input(0).shape[0]})) {
      return {};
    }
    return input(0).shape;
  }

  Shape elementwise_pair() {
    if (!arity(2, 0, 0, false) || !input_rank(0, DType::f32, 1) || !same_as_first(1)) return {};
    return input(0).shape;
  }

  const Operands& operands_;
  std::string message_;
};

}  // namespace

tl::expected<Shape, std::string> infer_output(const Op& op, const Operands& operands) {
  ShapeRules rules(operands);
  Shape shape = std::visit(rules, op);
  if (!rules.message().empty()) return tl::unexpected<std::string>(rules.message());
  return shape;
}

std::string_view to_string(State::Kind kind) {
  switch (kind) {
    case State::Kind::key_value_cache:
      return "key_value_cache";
    case State::Kind::convolution:
      return "convolution";
    case State::Kind::delta_net:
      return "delta_net";
  }
  return "";
}

}  // namespace hexlm
