#include "backends/exact/double_executor.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <variant>

#include "base/progress.hpp"
#include "base/text.hpp"
#include "quantization/quantizer.hpp"

namespace hexlm {
namespace {

int64_t elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }

/// Eight sums, so that the compiler may use vectors: it must not reorder a single one.
double dot(const double* a, const double* b, int64_t count) {
  constexpr int64_t lanes = 8;
  std::array<double, lanes> sums = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (int64_t lane = 0; lane < lanes; ++lane) sums[static_cast<size_t>(lane)] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

Status DoubleExecutor::run(const SymbolValues& symbols, const std::vector<std::vector<double>>& inputs) {
  symbols_ = symbols;
  values_.clear();
  last_use_.clear();
  if (inputs.size() != graph_.inputs().size()) {
    return fail(ErrorCode::runtime,
                fmt::format("the graph has {} inputs, {} were given", graph_.inputs().size(), inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) values_[graph_.inputs()[i].index] = inputs[i];
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    for (const ValueId input : graph_.nodes()[i].inputs) last_use_[input.index] = i;
  }
  for (const ValueId output : graph_.outputs()) last_use_.erase(output.index);
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    if (interrupted()) return fail(ErrorCode::interrupted, "interrupted");
    const Node& node = graph_.nodes()[i];
    values_[node.output.index] = std::visit([&](const auto& op) { return apply(node, op); }, node.op);
    if (error_) return tl::unexpected<Error>(*error_);
    if (!options_.keep_values) drop_after(i);
  }
  return {};
}

void DoubleExecutor::drop_after(size_t node) {
  for (const ValueId input : graph_.nodes()[node].inputs) {
    const auto found = last_use_.find(input.index);
    if (found != last_use_.end() && found->second == node) values_.erase(input.index);
  }
}

std::vector<float> DoubleExecutor::value(ValueId id) const {
  const std::vector<double>& values = values_.at(id.index);
  return {values.begin(), values.end()};
}

WeightView DoubleExecutor::find(ParameterId id) {
  const Parameter& parameter = graph_.parameter(id);
  auto view = weights_.find(parameter.name);
  if (view && view->shape == parameter.shape) return *std::move(view);
  if (!error_) {
    error_ =
        view ? Error{ErrorCode::bad_input,
                     fmt::format("{}: weight '{}' has shape {}, the graph asks for {}", weights_.origin(),
                                 parameter.name, format_shape(view->shape), format_shape(parameter.shape)),
                     ""}
             : view.error();
  }
  return {};
}

std::vector<double> DoubleExecutor::small(ParameterId id) {
  const WeightView view = find(id);
  if (error_) return std::vector<double>(static_cast<size_t>(elements(graph_.parameter(id).shape)));
  const std::vector<float> values = decode_rows(view, 0, view.rows());
  return {values.begin(), values.end()};
}

std::vector<double> DoubleExecutor::project(const std::vector<double>& x, ParameterId id) {
  // Rows of one hand-out: enough work to outweigh it, few enough to stay in a cache as floats.
  constexpr int64_t block = 16;
  const std::vector<int64_t>& shape = graph_.parameter(id).shape;
  const int64_t rows = shape[0];
  // A patch embedding's kernel is a matrix whose columns are its inner dimensions.
  const int64_t columns = elements(shape) / rows;
  const auto count = static_cast<int64_t>(x.size()) / columns;
  std::vector<double> y(static_cast<size_t>(count * rows));
  const WeightView view = find(id);
  if (error_) return y;
  pool_->run(rows, block, [&](int64_t begin, int64_t end, int) {
    const std::vector<float> decoded = decode_rows(view, begin, end);
    const std::vector<double> weight(decoded.begin(), decoded.end());
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t r = begin; r < end; ++r) {
        y[static_cast<size_t>(i * rows + r)] =
            dot(x.data() + i * columns, weight.data() + (r - begin) * columns, columns);
      }
    }
  });
  weights_.release(view);
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::Embedding&) {
  const WeightView table = find(node.parameters[0]);
  std::vector<double> y;
  if (error_) return y;
  for (const double id : in(node, 0)) {
    const std::vector<float> row = decode_rows(table, static_cast<int64_t>(id), static_cast<int64_t>(id) + 1);
    y.insert(y.end(), row.begin(), row.end());
  }
  weights_.release(table);
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::Linear&) {
  std::vector<double> y = project(in(node, 0), node.parameters[0]);
  if (node.parameters.size() > 1) {
    const std::vector<double> bias = small(node.parameters[1]);
    for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::RmsNorm& op) {
  const std::vector<double> weight = small(node.parameters[0]);
  std::vector<double> y = in(node, 0);
  const auto dim = static_cast<int64_t>(weight.size());
  for (double* row = y.data(); row < y.data() + y.size(); row += dim) {
    const double factor = 1 / std::sqrt(dot(row, row, dim) / static_cast<double>(dim) + op.epsilon);
    for (int64_t i = 0; i < dim; ++i) row[i] *= factor * (weight[static_cast<size_t>(i)] + op.weight_offset);
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::GatedRmsNorm& op) {
  std::vector<double> y = apply(node, op::RmsNorm{op.epsilon, 0});
  for (size_t i = 0; i < y.size(); ++i) y[i] *= silu(in(node, 1)[i]);
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::Reshape&) { return in(node, 0); }

std::vector<double> DoubleExecutor::apply(const Node& node, const op::Slice& op) {
  const int64_t columns = last(node.inputs[0]);
  const std::vector<double>& x = in(node, 0);
  std::vector<double> y;
  for (auto row = x.begin(); row != x.end(); row += columns) y.insert(y.end(), row + op.begin, row + op.end);
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::Rope& op) {
  const Shape& shape = graph_.value(node.output).shape;
  const int64_t heads = shape[1].value;
  const int64_t dim = shape[2].value;
  std::vector<double> y = in(node, 0);
  for (int64_t t = 0; t < symbols_.tokens; ++t) {
    for (int64_t i = 0; i < op.rotary_dim / 2; ++i) {
      const auto at = static_cast<size_t>(i);
      const double position = in(node, 1)[static_cast<size_t>(op.stream[at] * symbols_.tokens + t)];
      // The angle in float is the definition (transformers), not a rounding of it.
      const float angle = static_cast<float>(position) * op.inverse_frequencies[at];
      const double cosine = std::cos(static_cast<double>(angle)) * op.attention_factor;
      const double sine = std::sin(static_cast<double>(angle)) * op.attention_factor;
      for (int64_t h = 0; h < heads; ++h) {
        double* x = y.data() + (t * heads + h) * dim;
        const double first = x[i];
        const double second = x[i + op.rotary_dim / 2];
        x[i] = first * cosine - second * sine;
        x[i + op.rotary_dim / 2] = second * cosine + first * sine;
      }
    }
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::Attention& op) {
  const int64_t dim = op.head_dim;
  std::vector<double> y(in(node, 0).size());
  for (int64_t t = 0; t < symbols_.tokens; ++t) {
    for (int64_t h = 0; h < op.query_heads; ++h) {
      const int64_t kv = h / (op.query_heads / op.key_value_heads);
      const double* query = in(node, 0).data() + (t * op.query_heads + h) * dim;
      std::vector<double> weights;
      for (int64_t s = 0; s <= t; ++s) {
        weights.push_back(dot(query, in(node, 1).data() + (s * op.key_value_heads + kv) * dim, dim) *
                          op.scale);
      }
      const double largest = *std::max_element(weights.begin(), weights.end());
      double sum = 0;
      for (double& weight : weights) sum += weight = std::exp(weight - largest);
      for (int64_t s = 0; s <= t; ++s) {
        const double* value = in(node, 2).data() + (s * op.key_value_heads + kv) * dim;
        for (int64_t i = 0; i < dim; ++i) {
          y[static_cast<size_t>((t * op.query_heads + h) * dim + i)] +=
              weights[static_cast<size_t>(s)] / sum * value[i];
        }
      }
    }
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::Add&) {
  std::vector<double> y = in(node, 0);
  for (size_t i = 0; i < y.size(); ++i) y[i] += in(node, 1)[i];
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::SiluMultiply&) {
  std::vector<double> y = in(node, 1);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= silu(in(node, 0)[i]);
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::SigmoidMultiply&) {
  std::vector<double> y = in(node, 0);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= sigmoid(in(node, 1)[i]);
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::CausalConvolution& op) {
  const std::vector<double> weight = small(node.parameters[0]);
  const std::vector<double>& x = in(node, 0);
  const int64_t channels = last(node.inputs[0]);
  std::vector<double> y(x.size());
  for (int64_t t = 0; t < symbols_.tokens; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t tap = 0; tap < op.taps; ++tap) {
        const int64_t source = t - op.taps + 1 + tap;
        if (source >= 0)
          sum +=
              weight[static_cast<size_t>(c * op.taps + tap)] * x[static_cast<size_t>(source * channels + c)];
      }
      y[static_cast<size_t>(t * channels + c)] = silu(sum);
    }
  }
  return y;
}

/// Spec A.4 steps 3 to 6, as the recurrence is written there.
std::vector<double> DoubleExecutor::apply(const Node& node, const op::GatedDeltaNet& op) {
  const int64_t dk = op.key_dim;
  const int64_t dv = op.value_dim;
  const int64_t stride = 2 * op.key_heads * dk + op.value_heads * dv;
  const std::vector<double> decay_rates = small(node.parameters[0]);
  const std::vector<double> step_biases = small(node.parameters[1]);
  std::vector<double> y;
  std::vector<double> states(static_cast<size_t>(op.value_heads * dk * dv));
  for (int64_t t = 0; t < symbols_.tokens; ++t) {
    for (int64_t h = 0; h < op.value_heads; ++h) {
      const auto gate = static_cast<size_t>(t * op.value_heads + h);
      const double beta = sigmoid(in(node, 1)[gate]);
      const auto head = static_cast<size_t>(h);
      const double step = std::log1p(std::exp(in(node, 2)[gate] + step_biases[head]));
      const double decay = std::exp(-std::exp(decay_rates[head]) * step);
      const double* qkv = in(node, 0).data() + t * stride;
      const int64_t key_head = h / (op.value_heads / op.key_heads);
      std::vector<double> q(qkv + key_head * dk, qkv + (key_head + 1) * dk);
      std::vector<double> k(qkv + (op.key_heads + key_head) * dk, qkv + (op.key_heads + key_head + 1) * dk);
      const double* v = qkv + 2 * op.key_heads * dk + h * dv;
      const double q_factor =
          1 / std::sqrt(dot(q.data(), q.data(), dk) + op.norm_epsilon) / std::sqrt(static_cast<double>(dk));
      const double k_factor = 1 / std::sqrt(dot(k.data(), k.data(), dk) + op.norm_epsilon);
      for (double& value : q) value *= q_factor;
      for (double& value : k) value *= k_factor;
      double* state = states.data() + h * dk * dv;
      for (int64_t i = 0; i < dk * dv; ++i) state[i] *= decay;
      for (int64_t j = 0; j < dv; ++j) {
        double read = 0;
        for (int64_t i = 0; i < dk; ++i) read += state[i * dv + j] * k[static_cast<size_t>(i)];
        double out = 0;
        for (int64_t i = 0; i < dk; ++i) {
          state[i * dv + j] += k[static_cast<size_t>(i)] * beta * (v[j] - read);
          out += state[i * dv + j] * q[static_cast<size_t>(i)];
        }
        y.push_back(out);
      }
    }
  }
  return y;
}

namespace {

/// Tokens that go to one expert, and what its answer counts for each.
struct Assigned {
  std::vector<int64_t> tokens;
  std::vector<double> shares;
};

std::vector<Assigned> assign_tokens(const std::vector<double>& router, int64_t tokens,
                                    const op::MixtureOfExperts& op) {
  std::vector<Assigned> experts(static_cast<size_t>(op.experts));
  for (int64_t t = 0; t < tokens; ++t) {
    const double* logits = router.data() + t * op.experts;
    std::vector<int64_t> order(static_cast<size_t>(op.experts));
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
    double all = 0;
    double chosen = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const double weight = std::exp(logits[order[i]] - logits[order[0]]);
      all += weight;
      if (static_cast<int64_t>(i) < op.top_k) chosen += weight;
    }
    for (int64_t i = 0; i < op.top_k; ++i) {
      const int64_t expert = order[static_cast<size_t>(i)];
      Assigned& assigned = experts[static_cast<size_t>(expert)];
      assigned.tokens.push_back(t);
      assigned.shares.push_back(std::exp(logits[expert] - logits[order[0]]) / (op.normalize ? chosen : all));
    }
  }
  return experts;
}

}  // namespace

std::vector<double> DoubleExecutor::apply(const Node& node, const op::MixtureOfExperts& op) {
  const auto hidden = static_cast<size_t>(last(node.inputs[0]));
  const std::vector<double>& x = in(node, 0);
  std::vector<double> y(x.size());
  const std::vector<Assigned> experts =
      assign_tokens(in(node, 1), static_cast<int64_t>(x.size() / hidden), op);
  for (size_t expert = 0; expert < experts.size(); ++expert) {
    const Assigned& assigned = experts[expert];
    if (assigned.tokens.empty()) continue;
    std::vector<double> rows;
    for (const int64_t t : assigned.tokens) {
      const auto row = x.begin() + t * static_cast<int64_t>(hidden);
      rows.insert(rows.end(), row, row + static_cast<int64_t>(hidden));
    }
    std::vector<double> inner = project(rows, node.parameters[expert * 3]);
    const std::vector<double> up = project(rows, node.parameters[expert * 3 + 1]);
    for (size_t c = 0; c < inner.size(); ++c) inner[c] = silu(inner[c]) * up[c];
    const std::vector<double> out = project(inner, node.parameters[expert * 3 + 2]);
    for (size_t i = 0; i < assigned.tokens.size(); ++i) {
      for (size_t c = 0; c < hidden; ++c) {
        y[static_cast<size_t>(assigned.tokens[i]) * hidden + c] += assigned.shares[i] * out[i * hidden + c];
      }
    }
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::GatherRows&) {
  const int64_t columns = last(node.inputs[0]);
  std::vector<double> y;
  for (const double row : in(node, 1)) {
    const auto from = in(node, 0).begin() + static_cast<int64_t>(row) * columns;
    y.insert(y.end(), from, from + columns);
  }
  return y;
}

}  // namespace hexlm
