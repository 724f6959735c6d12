#include "quantization/rotated_weights.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <utility>

#include "quantization/quantizer.hpp"

namespace hexlm {
namespace {

constexpr uint64_t rotation_seed = 0x68656c6d;
constexpr const char* rotated_embedding = "embed_tokens.weight";
constexpr const char* rotated_head = "lm_head.weight";

tl::unexpected<Error> not_foldable(const Node& node, const std::string& why) {
  return fail(ErrorCode::unsupported,
              fmt::format("a rotation can't be folded into this model: '{}' {}", node.name, why),
              "export without --rotate");
}

}  // namespace

/// Follows the residual stream through the graphs and notes what must become of each parameter.
class RotationPlanner {
 public:
  RotationPlanner(RotatedWeights& weights, const ModelConfig& config) : weights_(weights), config_(config) {}

  Status plan_decoder(const Graph& graph) {
    graph_ = &graph;
    stream_.assign(graph.values().size(), false);
    normed_.assign(graph.values().size(), nullptr);
    for (const Node& node : graph.nodes()) HEXLM_TRY(visit(node));
    return {};
  }

  /// Image features take the places of embeddings: what makes them writes into the stream.
  Status plan_tower(const Graph& tower) {
    graph_ = &tower;
    for (ValueId id : tower.outputs()) {
      const Node* node = producer(id);
      while (node != nullptr && std::holds_alternative<op::GatherRows>(node->op)) {
        node = producer(node->inputs[0]);
      }
      if (node == nullptr || !std::holds_alternative<op::Linear>(node->op)) {
        return not_foldable(*producer(id), "makes image features without a matrix at its end");
      }
      HEXLM_TRY(write(*node));
    }
    return {};
  }

 private:
  const Node* producer(ValueId id) const {
    const NodeId node = graph_->value(id).producer;
    return node.index < 0 ? nullptr : &graph_->nodes()[static_cast<size_t>(node.index)];
  }
  const std::string& name_of(ParameterId id) const { return graph_->parameter(id).name; }
  bool in_stream(ValueId id) const { return stream_[static_cast<size_t>(id.index)]; }
  const Node* norm_of(ValueId id) const { return normed_[static_cast<size_t>(id.index)]; }

  Status change(const Node& node, const std::string& name, RotatedWeights::Change change) {
    HEXLM_ASSIGN(const WeightView view, weights_.base_->describe(change.source));
    if (!view.codec.is_float()) {
      return not_foldable(node, fmt::format("reads '{}', which is quantized already ({})", change.source,
                                            to_string(view.codec)));
    }
    if (!weights_.changes_.emplace(name, std::move(change)).second) {
      return not_foldable(node, fmt::format("shares '{}' with another node", name));
    }
    return {};
  }

  /// `parameter` reads what the norm `norm` makes.
  Status read(const Node& node, ParameterId parameter, const Node& norm) {
    RotatedWeights::Change what;
    what.source = name_of(parameter);
    what.norm = name_of(norm.parameters[0]);
    what.norm_offset = std::get<op::RmsNorm>(norm.op).weight_offset;
    what.turn_columns = true;
    const bool tied = config_.text.tied_embeddings && what.source == rotated_embedding;
    return change(node, tied ? rotated_head : what.source, what);
  }

  Status write_parameter(const Node& node, ParameterId parameter) {
    RotatedWeights::Change what;
    what.source = name_of(parameter);
    what.turn_rows = true;
    return change(node, what.source, what);
  }

  Status write(const Node& node) {
    if (std::holds_alternative<op::MixtureOfExperts>(node.op)) {
      for (size_t i = 2; i < node.parameters.size(); i += 3) {
        HEXLM_TRY(write_parameter(node, node.parameters[i]));
      }
      return {};
    }
    if (!std::holds_alternative<op::Linear>(node.op)) {
      return not_foldable(node, "adds to the residual stream and is no matrix");
    }
    for (const ParameterId id : node.parameters) HEXLM_TRY(write_parameter(node, id));
    return {};
  }

  Status visit(const Node& node) {
    const auto output = static_cast<size_t>(node.output.index);
    if (std::holds_alternative<op::Embedding>(node.op)) {
      RotatedWeights::Change what;
      what.source = name_of(node.parameters[0]);
      what.turn_columns = true;
      stream_[output] = true;
      return change(node, what.source, what);
    }
    const bool streams = !node.inputs.empty() && in_stream(node.inputs[0]);
    if (streams && std::holds_alternative<op::Add>(node.op)) {
      const Node* writer = producer(node.inputs[1]);
      if (writer == nullptr || in_stream(node.inputs[1]))
        return not_foldable(node, "adds what no matrix makes");
      stream_[output] = true;
      return write(*writer);
    }
    if (streams && std::holds_alternative<op::RmsNorm>(node.op)) return enter_norm(node);
    const bool passes = std::holds_alternative<op::ReplaceRows>(node.op) ||
                        std::holds_alternative<op::AddRows>(node.op) ||
                        std::holds_alternative<op::GatherRows>(node.op);
    if (passes && (streams || norm_of(node.inputs[0]) != nullptr)) {
      stream_[output] = streams;
      normed_[output] = norm_of(node.inputs[0]);
      return {};
    }
    for (const ValueId id : node.inputs) {
      if (in_stream(id)) return not_foldable(node, "reads the residual stream without a norm");
    }
    return read_normed(node);
  }

  Status enter_norm(const Node& node) {
    RotatedWeights::Change what;
    what.source = name_of(node.parameters[0]);
    what.norm_offset = std::get<op::RmsNorm>(node.op).weight_offset;
    what.becomes_one = true;
    normed_[static_cast<size_t>(node.output.index)] = &node;
    return change(node, what.source, what);
  }

  Status read_normed(const Node& node) {
    const Node* norm = node.inputs.empty() ? nullptr : norm_of(node.inputs[0]);
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (norm_of(node.inputs[i]) != nullptr)
        return not_foldable(node, "reads a norm of the residual stream");
    }
    if (norm == nullptr) return {};
    if (std::holds_alternative<op::Linear>(node.op)) return read(node, node.parameters[0], *norm);
    if (!std::holds_alternative<op::MixtureOfExperts>(node.op)) {
      return not_foldable(node, "reads a norm of the residual stream and is no matrix");
    }
    for (size_t i = 0; i < node.parameters.size(); ++i) {
      if (i % 3 != 2) HEXLM_TRY(read(node, node.parameters[i], *norm));
    }
    return {};
  }

  RotatedWeights& weights_;
  const ModelConfig& config_;
  const Graph* graph_ = nullptr;
  std::vector<bool> stream_;         ///< by value: it is the residual stream
  std::vector<const Node*> normed_;  ///< by value: the norm that made it of the stream
};

namespace {

/// The head is a matrix of its own from now on.
Status untie(ModelConfig& config, const std::string& origin) {
  if (!config.text.tied_embeddings) return {};
  Json json = config.source;
  const auto text = json.find("text_config");
  if (text != json.end() && text->is_object()) (*text)["tie_word_embeddings"] = false;
  json["tie_word_embeddings"] = false;
  HEXLM_ASSIGN(config, parse_model_config(json, origin + "/config.json"));
  return {};
}

}  // namespace

Result<std::shared_ptr<const SourceWeights>> RotatedWeights::create(std::shared_ptr<const SourceWeights> base,
                                                                    ModelConfig& config) {
  HEXLM_ASSIGN(HadamardRotation rotation, HadamardRotation::create(config.text.hidden_size, rotation_seed));
  std::shared_ptr<RotatedWeights> weights(new RotatedWeights(std::move(rotation)));
  weights->base_ = std::move(base);
  const std::string origin = weights->origin();
  ModelConfig whole = config;
  HEXLM_TRY(resolve_vision(whole, weights->base_->contains(tower_weight), origin));
  RotationPlanner planner(*weights, whole);
  HEXLM_ASSIGN(const Graph decoder, build_text_graph(whole));
  HEXLM_TRY(planner.plan_decoder(decoder));
  if (whole.vision) {
    HEXLM_ASSIGN(const Graph tower, build_vision_graph(whole));
    HEXLM_TRY(planner.plan_tower(tower));
  }
  HEXLM_TRY(untie(config, origin));
  return std::shared_ptr<const SourceWeights>(std::move(weights));
}

void RotatedWeights::apply(const Change& change, const std::vector<float>& norm, std::vector<float>& values,
                           int64_t rows) const {
  const int64_t columns = static_cast<int64_t>(values.size()) / rows;
  std::vector<double> line(static_cast<size_t>(rotation_.size()));
  if (change.becomes_one) std::fill(values.begin(), values.end(), 1 - change.norm_offset);
  for (int64_t row = 0; change.turn_columns && row < rows; ++row) {
    float* const w = values.data() + row * columns;
    for (int64_t c = 0; c < columns; ++c) {
      const auto at = static_cast<size_t>(c);
      const double factor = norm.empty() ? 1 : static_cast<double>(norm[at]) + change.norm_offset;
      line[at] = w[c] * factor;
    }
    rotation_.apply(line.data());
    for (int64_t c = 0; c < columns; ++c) w[c] = static_cast<float>(line[static_cast<size_t>(c)]);
  }
  for (int64_t column = 0; change.turn_rows && column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) {
      line[static_cast<size_t>(row)] = values[static_cast<size_t>(row * columns + column)];
    }
    rotation_.apply(line.data());
    for (int64_t row = 0; row < rows; ++row) {
      values[static_cast<size_t>(row * columns + column)] =
          static_cast<float>(line[static_cast<size_t>(row)]);
    }
  }
}

Result<WeightView> RotatedWeights::describe(std::string_view name) const {
  const auto found = changes_.find(name);
  if (found == changes_.end()) return base_->describe(name);
  HEXLM_ASSIGN(WeightView view, base_->describe(found->second.source));
  view.name = found->first;
  view.codec = Codec{};
  view.data.dtype = DType::f32;
  view.data.bytes = {};
  return view;
}

Result<WeightView> RotatedWeights::find(std::string_view name) const {
  const auto found = changes_.find(name);
  if (found == changes_.end()) return base_->find(name);
  const Change& change = found->second;
  HEXLM_ASSIGN(WeightView view, base_->find(change.source));
  auto values = std::make_shared<std::vector<float>>(decode_rows(view, 0, view.rows()));
  base_->release(view);
  std::vector<float> norm;
  if (!change.norm.empty()) {
    HEXLM_ASSIGN(const WeightView weights, base_->find(change.norm));
    norm = decode_rows(weights, 0, weights.rows());
  }
  // A vector is one row, turned as the rows of a matrix are.
  apply(change, norm, *values, view.rows());
  view.name = found->first;
  view.codec = Codec{};
  view.data.dtype = DType::f32;
  view.data.bytes = std::as_bytes(std::span(*values));
  view.storage = std::move(values);
  return view;
}

bool RotatedWeights::contains(std::string_view name) const {
  return changes_.find(name) != changes_.end() || base_->contains(name);
}

void RotatedWeights::release(const WeightView& weight) const {
  if (weight.storage == nullptr) base_->release(weight);
}

std::vector<std::string> RotatedWeights::names() const {
  const std::vector<std::string> base = base_->names();
  std::set<std::string> all(base.begin(), base.end());
  for (const auto& [name, change] : changes_) all.insert(name);
  return {all.begin(), all.end()};
}

const MappedFile* RotatedWeights::mapping(const WeightView& weight) const {
  return weight.storage != nullptr ? nullptr : base_->mapping(weight);
}

bool RotatedWeights::is_computed(std::string_view name) const {
  return changes_.find(name) != changes_.end() || base_->is_computed(name);
}

}  // namespace hexlm
