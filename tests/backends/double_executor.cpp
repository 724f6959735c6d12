#include "double_executor.hpp"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <variant>

#include "quantization/quantizer.hpp"

namespace hexlm {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<double> project(const std::vector<double>& x, int64_t columns, const double* weight,
                            int64_t rows) {
  const auto count = static_cast<int64_t>(x.size()) / columns;
  std::vector<double> y(static_cast<size_t>(count * rows));
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t r = 0; r < rows; ++r) {
      y[static_cast<size_t>(i * rows + r)] = dot(x.data() + i * columns, weight + r * columns, columns);
    }
  }
  return y;
}

}  // namespace

void DoubleExecutor::run(const SymbolValues& symbols, const std::vector<std::vector<double>>& inputs) {
  symbols_ = symbols;
  values_.clear();
  ASSERT_EQ(inputs.size(), graph_.inputs().size());
  for (size_t i = 0; i < inputs.size(); ++i) values_[graph_.inputs()[i].index] = inputs[i];
  for (const Node& node : graph_.nodes()) {
    values_[node.output.index] = std::visit([&](const auto& op) { return apply(node, op); }, node.op);
  }
}

std::vector<float> DoubleExecutor::value(ValueId id) const {
  const std::vector<double>& values = values_.at(id.index);
  return {values.begin(), values.end()};
}

const DoubleExecutor::Matrix& DoubleExecutor::parameter(ParameterId id) {
  Matrix& matrix = parameters_[id.index];
  if (!matrix.values.empty()) return matrix;
  const auto view = weights_.find(graph_.parameter(id).name);
  EXPECT_TRUE(view) << graph_.parameter(id).name;
  if (!view) return matrix;
  matrix.rows = view->rows();
  matrix.columns = view->columns();
  const std::vector<float> values = decode_rows(*view, 0, view->rows());
  matrix.values.assign(values.begin(), values.end());
  return matrix;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::Embedding&) {
  const Matrix& table = parameter(node.parameters[0]);
  std::vector<double> y;
  for (const double id : in(node, 0)) {
    const double* row = table.row(static_cast<int64_t>(id));
    y.insert(y.end(), row, row + table.columns);
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::Linear&) {
  const Matrix& weight = parameter(node.parameters[0]);
  std::vector<double> y = project(in(node, 0), weight.columns, weight.values.data(), weight.rows);
  if (node.parameters.size() > 1) {
    const std::vector<double>& bias = parameter(node.parameters[1]).values;
    for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::RmsNorm& op) {
  const std::vector<double>& weight = parameter(node.parameters[0]).values;
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
  const std::vector<double>& weight = parameter(node.parameters[0]).values;
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
  std::vector<double> y;
  std::vector<double> states(static_cast<size_t>(op.value_heads * dk * dv));
  for (int64_t t = 0; t < symbols_.tokens; ++t) {
    for (int64_t h = 0; h < op.value_heads; ++h) {
      const auto gate = static_cast<size_t>(t * op.value_heads + h);
      const double beta = sigmoid(in(node, 1)[gate]);
      const double step = std::log1p(
          std::exp(in(node, 2)[gate] + parameter(node.parameters[1]).values[static_cast<size_t>(h)]));
      const double decay =
          std::exp(-std::exp(parameter(node.parameters[0]).values[static_cast<size_t>(h)]) * step);
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

std::vector<double> DoubleExecutor::apply(const Node& node, const op::MixtureOfExperts& op) {
  const int64_t hidden = last(node.inputs[0]);
  std::vector<double> y(in(node, 0).size());
  for (int64_t t = 0; t < symbols_.tokens; ++t) {
    const double* logits = in(node, 1).data() + t * op.experts;
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
    const std::vector<double> x(in(node, 0).begin() + t * hidden, in(node, 0).begin() + (t + 1) * hidden);
    for (int64_t i = 0; i < op.top_k; ++i) {
      const auto expert = static_cast<size_t>(order[static_cast<size_t>(i)]);
      const double weight = std::exp(logits[expert] - logits[order[0]]) / (op.normalize ? chosen : all);
      const auto matrix = [&](size_t part) {
        return parameter(node.parameters[expert * 3 + part]).values.data();
      };
      std::vector<double> inner = project(x, hidden, matrix(0), op.intermediate);
      const std::vector<double> up = project(x, hidden, matrix(1), op.intermediate);
      for (size_t c = 0; c < inner.size(); ++c) inner[c] = silu(inner[c]) * up[c];
      const std::vector<double> out = project(inner, op.intermediate, matrix(2), hidden);
      for (int64_t c = 0; c < hidden; ++c)
        y[static_cast<size_t>(t * hidden + c)] += weight * out[static_cast<size_t>(c)];
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
