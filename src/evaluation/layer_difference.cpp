#include "evaluation/layer_difference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <numeric>

namespace hexlm {
namespace {

/// Kernels differ from each other by rounding, half-precision caches and, in front of integer weights,
/// activations in 8 bits, whose noise is about 1 %.
constexpr double float_snr_db = 70;
constexpr double half_cache_snr_db = 55;
/// One scale a head and token, in steps of 1/127 of the greatest number: as for activations.
constexpr double int8_cache_snr_db = 38;
constexpr double quantized_input_snr_db = 38;

bool renames(const Node& node) {
  return std::holds_alternative<op::Reshape>(node.op) || std::holds_alternative<op::Slice>(node.op) ||
         std::holds_alternative<op::GatherRows>(node.op);
}

size_t index_of(const Graph& graph, const Node& node) {
  return static_cast<size_t>(&node - graph.nodes().data());
}

/// ‖w − ŵ‖ / ‖w‖ that the export noted; 0 for a checkpoint and for lossless codecs.
double stored_error(const Model& model, const std::string& parameter) {
  if (!model.is_package()) return 0;
  for (const PackageTensor& tensor : model.package()->manifest().tensors) {
    if (tensor.name == parameter) return tensor.relative_error;
  }
  return 0;
}

bool is_integer(const Model& model, const std::string& parameter) {
  const auto weight = model.weights()->find(parameter);
  return weight && !weight->codec.is_float();
}

double noise_of(double snr_db) { return std::pow(10.0, -snr_db / 10); }

/// Noise powers of independent sources add up; a linear's output has the relative error of its weights.
double expected_snr(const Model& reference, const Model& other, const Node& node, Precision precision,
                    CacheType cache) {
  double noise = noise_of(float_snr_db);
  const bool is_cache = std::holds_alternative<op::Attention>(node.op) && node.state;
  if (is_cache && cache == CacheType::f16) noise += noise_of(half_cache_snr_db);
  if (is_cache && cache == CacheType::int8) noise += noise_of(int8_cache_snr_db);
  double weights = 0;
  bool quantized = false;
  for (const ParameterId id : node.parameters) {
    const std::string& name = other.graph()->parameter(id).name;
    weights = std::max({weights, stored_error(other, name), stored_error(reference, name)});
    quantized = quantized || is_integer(other, name) || is_integer(reference, name);
  }
  noise += weights * weights;
  if (quantized && precision != Precision::high) noise += noise_of(quantized_input_snr_db);
  return -10 * std::log10(noise);
}

}  // namespace

double NodeDifference::excess_db() const {
  if (!compared) return -std::numeric_limits<double>::infinity();
  return expected_snr_db - local.snr_db();
}

Status check_same_graph(const Graph& reference, const Graph& other) {
  const size_t count = std::min(reference.nodes().size(), other.nodes().size());
  for (size_t i = 0; i < count; ++i) {
    const Node& a = reference.nodes()[i];
    const Node& b = other.nodes()[i];
    const Shape& a_shape = reference.value(a.output).shape;
    const Shape& b_shape = other.value(b.output).shape;
    if (a.name == b.name && op_name(a.op) == op_name(b.op) && a_shape == b_shape) continue;
    return fail(
        ErrorCode::bad_input,
        fmt::format("the models differ at node {}: {} {} {} in the reference, {} {} {} in the other", i,
                    a.name, op_name(a.op), to_string(a_shape), b.name, op_name(b.op), to_string(b_shape)),
        "--no-layers compares outputs only, which needs the same vocabulary");
  }
  if (reference.nodes().size() == other.nodes().size()) return {};
  return fail(ErrorCode::bad_input,
              fmt::format("the reference has {} nodes, the other model {}", reference.nodes().size(),
                          other.nodes().size()),
              "--no-layers compares outputs only, which needs the same vocabulary");
}

class LayerComparison::Recorder final : public Observer {
 public:
  explicit Recorder(LayerComparison& comparison) : comparison_(comparison) {}
  void after(const Node& node, const Value&, std::span<const float> data, const SymbolValues&) override {
    const size_t index = index_of(*comparison_.graph_, node);
    if (!comparison_.nodes_[index].compared) return;
    std::vector<float>& values = comparison_.recorded_[index];
    values.insert(values.end(), data.begin(), data.end());
  }

 private:
  LayerComparison& comparison_;
};

/// Compares what a node produced and, for local errors, puts the reference's value in its place.
class LayerComparison::Comparer final : public Observer {
 public:
  Comparer(LayerComparison& comparison, const Graph& graph, bool local)
      : comparison_(comparison), graph_(graph), local_(local) {}

  void after(const Node& node, const Value&, std::span<const float> data, const SymbolValues&) override {
    const size_t index = index_of(graph_, node);
    NodeDifference& difference = comparison_.nodes_[index];
    if (!difference.compared) return;
    (local_ ? difference.local : difference.global)
        .add(reference(index, data.size()), data, comparison_.pool_);
    if (!local_) comparison_.position_[index] += data.size();
  }

  void edit(const Node& node, const Value&, std::span<float> data) override {
    const size_t index = index_of(graph_, node);
    if (!local_ || !comparison_.nodes_[index].compared) return;
    const std::span<const float> values = reference(index, data.size());
    std::copy(values.begin(), values.end(), data.begin());
    comparison_.position_[index] += data.size();
  }

 private:
  std::span<const float> reference(size_t index, size_t count) const {
    return std::span<const float>(comparison_.recorded_[index]).subspan(comparison_.position_[index], count);
  }
  LayerComparison& comparison_;
  const Graph& graph_;
  bool local_;
};

LayerComparison::LayerComparison(const Model& reference, const Model& other, Precision precision,
                                 CacheType cache, int threads)
    : recorded_(reference.graph()->nodes().size()),
      position_(recorded_.size(), 0),
      pool_(threads),
      graph_(reference.graph()),
      recorder_(std::make_unique<Recorder>(*this)),
      global_(std::make_unique<Comparer>(*this, *other.graph(), false)),
      local_(std::make_unique<Comparer>(*this, *other.graph(), true)) {
  for (const Node& node : graph_->nodes()) {
    NodeDifference difference;
    difference.name = node.name;
    difference.op = op_name(node.op);
    difference.compared = !renames(node);
    difference.expected_snr_db = expected_snr(reference, other, node, precision, cache);
    nodes_.push_back(std::move(difference));
    bytes_per_token_.push_back(elements(graph_->value(node.output).shape, {1, 1, 0}) *
                               static_cast<int64_t>(sizeof(float)));
  }
}

int64_t LayerComparison::tokens_within(int64_t bytes) const {
  int64_t per_token = 1;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].compared) per_token += bytes_per_token_[i];
  }
  return std::max<int64_t>(1, bytes / per_token);
}

void LayerComparison::begin_pass() { std::fill(position_.begin(), position_.end(), size_t{0}); }

Observer& LayerComparison::record() {
  for (std::vector<float>& values : recorded_) values.clear();
  return *recorder_;
}

Observer& LayerComparison::compare_global() {
  begin_pass();
  return *global_;
}

Observer& LayerComparison::compare_local() {
  begin_pass();
  return *local_;
}

std::vector<size_t> LayerComparison::culprits() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].compared) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    const double left = nodes_[a].excess_db();
    const double right = nodes_[b].excess_db();
    return left != right ? left > right : a < b;
  });
  return order;
}

std::optional<size_t> LayerComparison::first_divergence() const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].excess_db() > divergence_margin_db) return i;
  }
  return std::nullopt;
}

}  // namespace hexlm
