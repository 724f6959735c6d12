#include <algorithm>
#include <cmath>
#include <numbers>

#include "backends/exact/double_executor.hpp"

namespace hexlm {

std::vector<double> DoubleExecutor::apply(const Node& node, const op::ReplaceRows&) {
  const int64_t columns = last(node.output);
  std::vector<double> y = in(node, 0);
  for (size_t row = 0; row < in(node, 2).size(); ++row) {
    const auto index = static_cast<int64_t>(in(node, 2)[row]);
    if (index < 0) continue;
    std::copy_n(in(node, 1).begin() + index * columns, columns,
                y.begin() + static_cast<int64_t>(row) * columns);
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::AddRows&) {
  const std::vector<double> rows = apply(node, op::ReplaceRows{});
  std::vector<double> y = in(node, 0);
  const auto columns = static_cast<size_t>(last(node.output));
  for (size_t i = 0; i < y.size(); ++i) {
    if (in(node, 2)[i / columns] >= 0) y[i] += rows[i];
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::LayerNorm& op) {
  const std::vector<double> weight = small(node.parameters[0]);
  const std::vector<double> bias = small(node.parameters[1]);
  const auto dim = static_cast<double>(weight.size());
  std::vector<double> y = in(node, 0);
  for (size_t row = 0; row < y.size(); row += weight.size()) {
    double mean = 0;
    double variance = 0;
    for (size_t i = 0; i < weight.size(); ++i) mean += y[row + i] / dim;
    for (size_t i = 0; i < weight.size(); ++i) variance += (y[row + i] - mean) * (y[row + i] - mean) / dim;
    const double factor = 1 / std::sqrt(variance + op.epsilon);
    for (size_t i = 0; i < weight.size(); ++i)
      y[row + i] = (y[row + i] - mean) * factor * weight[i] + bias[i];
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::Gelu& op) {
  std::vector<double> y = in(node, 0);
  for (double& x : y) {
    switch (op.kind) {
      case op::Gelu::Kind::tanh:
        x *= 0.5 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
        break;
      case op::Gelu::Kind::erf:
        x *= 0.5 * std::erfc(-x / std::numbers::sqrt2);
        break;
      case op::Gelu::Kind::quick:
        x /= 1 + std::exp(-1.702 * x);
        break;
    }
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::InterpolateRows&) {
  const std::vector<double> table = small(node.parameters[0]);
  const int64_t columns = last(node.output);
  const auto taps = static_cast<size_t>(graph_.value(node.inputs[0]).shape[0].value);
  const size_t rows = in(node, 0).size() / taps;
  std::vector<double> y(rows * static_cast<size_t>(columns));
  for (size_t tap = 0; tap < taps; ++tap) {
    for (size_t row = 0; row < rows; ++row) {
      const double* from = table.data() + static_cast<int64_t>(in(node, 0)[tap * rows + row]) * columns;
      double* to = y.data() + row * static_cast<size_t>(columns);
      for (int64_t c = 0; c < columns; ++c) to[c] += in(node, 1)[tap * rows + row] * from[c];
    }
  }
  return y;
}

std::vector<double> DoubleExecutor::apply(const Node& node, const op::PatchAttention& op) {
  const int64_t dim = op.head_dim;
  const int64_t width = op.heads * dim;
  const auto rows = static_cast<int64_t>(in(node, 0).size()) / (3 * width);
  std::vector<double> qkv = in(node, 0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t vector = 0; vector < 2 * op.heads; ++vector) {
      double* x = qkv.data() + row * 3 * width + vector * dim;
      for (int64_t i = 0; i < dim / 2; ++i) {
        const double cosine = in(node, 1)[static_cast<size_t>(row * dim / 2 + i)];
        const double sine = in(node, 2)[static_cast<size_t>(row * dim / 2 + i)];
        const double first = x[i];
        const double second = x[i + dim / 2];
        x[i] = first * cosine - second * sine;
        x[i + dim / 2] = second * cosine + first * sine;
      }
    }
  }
  std::vector<double> y(static_cast<size_t>(rows * width));
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = static_cast<int64_t>(in(node, 3)[static_cast<size_t>(row)]);
    const auto end = static_cast<int64_t>(in(node, 3)[static_cast<size_t>(rows + row)]);
    for (int64_t head = 0; head < op.heads; ++head) {
      const double* query = qkv.data() + row * 3 * width + head * dim;
      std::vector<double> weights;
      for (int64_t s = begin; s < end; ++s) {
        const double* key = qkv.data() + s * 3 * width + width + head * dim;
        double sum = 0;
        for (int64_t i = 0; i < dim; ++i) sum += query[i] * key[i];
        weights.push_back(sum * op.scale);
      }
      const double largest = *std::max_element(weights.begin(), weights.end());
      double total = 0;
      for (double& weight : weights) total += weight = std::exp(weight - largest);
      for (int64_t s = begin; s < end; ++s) {
        const double* value = qkv.data() + s * 3 * width + 2 * width + head * dim;
        for (int64_t i = 0; i < dim; ++i) {
          y[static_cast<size_t>(row * width + head * dim + i)] +=
              weights[static_cast<size_t>(s - begin)] / total * value[i];
        }
      }
    }
  }
  return y;
}

}  // namespace hexlm
