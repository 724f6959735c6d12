#include "support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/model_config.hpp"
#include "quantization/quantizer.hpp"
#include "support/test_data.hpp"

namespace hexlm {

ScopedIsa::ScopedIsa(const std::string& name) {
  if (const char* value = std::getenv("HEXLM_ISA"); value != nullptr) before_ = value;
  ::setenv("HEXLM_ISA", name.c_str(), 1);
}

ScopedIsa::~ScopedIsa() {
  if (before_) {
    ::setenv("HEXLM_ISA", before_->c_str(), 1);
  } else {
    ::unsetenv("HEXLM_ISA");
  }
}

std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (const KernelSet* set : kernel_sets()) {
    if (set->supported(cpu_features())) names.emplace_back(set->name);
  }
  return names;
}

std::vector<int32_t> ReferenceCase::tokens(const char* key) const {
  return facts.contains(key) ? facts[key].get<std::vector<int32_t>>() : std::vector<int32_t>{};
}

std::vector<float> ReferenceCase::tensor(const std::string& key) const {
  const TensorView* view = expected ? expected->find(key) : nullptr;
  if (view == nullptr || view->dtype != DType::f32) {
    ADD_FAILURE() << name << ": no float32 tensor " << key;
    return {};
  }
  std::vector<float> values(view->bytes.size() / sizeof(float));
  std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
  return values;
}

ReferenceCase load_case(const std::string& name) {
  const std::string folder = test_data("reference/" + name);
  ReferenceCase loaded;
  loaded.name = name;
  const auto facts = read_json(folder + "/case.json");
  const auto config_json = read_json(folder + "/checkpoint/config.json");
  auto weights = CheckpointWeights::open(folder + "/checkpoint");
  auto expected = SafetensorsFile::open(folder + "/expected.safetensors");
  if (!facts || !config_json || !weights || !expected) {
    ADD_FAILURE() << folder << ": cannot be read";
    std::abort();
  }
  auto config = parse_model_config(*config_json, folder);
  if (!config) {
    ADD_FAILURE() << config.error().message;
    std::abort();
  }
  apply_checkpoint_facts(*config, (*weights)->contains("lm_head.weight"));
  const Status vision = resolve_vision(*config, (*weights)->contains(tower_weight), folder);
  EXPECT_TRUE(vision) << vision.error().message;
  auto graph = build_text_graph(*config);
  if (!graph) {
    ADD_FAILURE() << graph.error().message;
    std::abort();
  }
  loaded.facts = *facts;
  loaded.weights = *weights;
  loaded.expected = std::move(*expected);
  loaded.graph = std::make_shared<const Graph>(std::move(*graph));
  loaded.config = *config;
  loaded.vocabulary = config->text.vocabulary_size;
  return loaded;
}

std::unique_ptr<Plan> compile_or_fail(const std::shared_ptr<const Graph>& graph,
                                      const std::shared_ptr<const WeightSource>& weights,
                                      const PlanOptions& options) {
  auto backend = make_backend("cpu");
  EXPECT_TRUE(backend);
  auto plan = (*backend)->compile(graph, weights, options);
  if (!plan) {
    ADD_FAILURE() << plan.error().message;
    std::abort();
  }
  return std::move(*plan);
}

Runner::Runner(const std::shared_ptr<const Graph>& graph, const std::shared_ptr<const WeightSource>& weights,
               const PlanOptions& options)
    : graph_(graph), plan_(compile_or_fail(graph, weights, options)) {
  auto state = plan_->create_state();
  if (!state) {
    ADD_FAILURE() << state.error().message;
    std::abort();
  }
  state_ = std::move(*state);
  vocabulary_ = graph_->value(graph_->outputs()[0]).shape.back().value;
}

Status Runner::step(std::span<const int32_t> tokens, bool want_logits, std::vector<float>& logits,
                    Observer* observer) {
  const auto count = static_cast<int32_t>(tokens.size());
  const auto past = static_cast<int32_t>(state_->length());
  std::vector<int32_t> positions;
  for (int stream = 0; stream < 3; ++stream) {
    for (int32_t i = 0; i < count; ++i) positions.push_back(past + i);
  }
  std::vector<int32_t> rows;
  for (int32_t i = 0; want_logits && i < count; ++i) rows.push_back(i);
  logits.assign(rows.size() * static_cast<size_t>(vocabulary_), -1.0F);
  const std::vector<const void*> inputs = {tokens.data(), positions.data(), rows.data()};
  const std::vector<float*> outputs = {logits.data()};
  RunArguments arguments;
  arguments.symbols.tokens = count;
  arguments.symbols.rows = static_cast<int64_t>(rows.size());
  arguments.inputs = inputs;
  arguments.outputs = outputs;
  arguments.observer = observer;
  return plan_->run(arguments, *state_);
}

std::vector<float> Runner::logits(std::span<const int32_t> tokens, int64_t chunk, Observer* observer) {
  std::vector<float> all;
  std::vector<float> some;
  while (!tokens.empty()) {
    const size_t count = std::min(tokens.size(), static_cast<size_t>(chunk));
    if (const Status status = step(tokens.first(count), true, some, observer); !status) {
      ADD_FAILURE() << status.error().message;
      return all;
    }
    all.insert(all.end(), some.begin(), some.end());
    tokens = tokens.subspan(count);
  }
  return all;
}

std::vector<int32_t> Runner::greedy(std::vector<float> last_logits, int64_t count) {
  std::vector<int32_t> tokens;
  while (true) {
    const auto best = std::max_element(last_logits.end() - vocabulary_, last_logits.end());
    tokens.push_back(static_cast<int32_t>(best - (last_logits.end() - vocabulary_)));
    if (static_cast<int64_t>(tokens.size()) == count) return tokens;
    last_logits = logits(std::span(tokens).last(1), 1);
    if (last_logits.empty()) return tokens;
  }
}

HiddenRecorder::HiddenRecorder(const Graph& graph) {
  for (const ValueId id : graph.hidden()) {
    index_[id.index] = hidden_.size();
    hidden_.emplace_back();
  }
}

void HiddenRecorder::after(const Node& node, const Value&, std::span<const float> data, const SymbolValues&) {
  const auto found = index_.find(node.output.index);
  if (found == index_.end()) return;
  std::vector<float>& hidden = hidden_[found->second];
  hidden.insert(hidden.end(), data.begin(), data.end());
}

/// Below it float32 results are subnormal and have no relative precision.
constexpr double smallest_magnitude = 1e-30;

double relative_error(std::span<const float> got, std::span<const float> expected) {
  if (got.size() != expected.size() || expected.empty()) return INFINITY;
  double difference = 0;
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - expected[i]);
    if (!(error <= difference)) difference = error;  // NaN stays
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  return difference / std::max(largest, smallest_magnitude);
}

double relative_distance(std::span<const float> got, std::span<const float> expected) {
  if (got.size() != expected.size() || expected.empty()) return INFINITY;
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), smallest_magnitude);
}

void TestWeights::add(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
  WeightView view;
  view.name = name;
  view.shape = std::move(shape);
  const auto bytes = std::as_bytes(std::span(values));
  memory_.push_back(std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end()));
  view.data = {name, DType::f32, view.shape, *memory_.back()};
  weights_[name] = std::move(view);
}

void TestWeights::add(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values,
                      const Codec& codec) {
  WeightView view;
  view.name = name;
  view.shape = std::move(shape);
  view.codec = codec;
  const auto encoded = encode_rtn(values, view.columns(), codec);
  if (!encoded) {
    ADD_FAILURE() << encoded.error().message;
    return;
  }
  const auto keep = [&](std::span<const std::byte> bytes) {
    memory_.push_back(std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end()));
    return std::span<const std::byte>(*memory_.back());
  };
  view.data.bytes = keep(encoded->data);
  view.scales.bytes = keep(std::as_bytes(std::span(encoded->scales)));
  view.offsets.bytes = keep(std::as_bytes(std::span(encoded->offsets)));
  weights_[name] = std::move(view);
}

Result<WeightView> TestWeights::find(std::string_view name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end()) return fail(ErrorCode::bad_input, "test weights: no " + std::string(name));
  return found->second;
}

std::shared_ptr<TestWeights> encode_case(const ReferenceCase& reference, const Codec& codec, bool decoded) {
  auto weights = std::make_shared<TestWeights>();
  for (const Parameter& parameter : reference.graph->parameters()) {
    const auto view = reference.weights->find(parameter.name);
    if (!view) {
      ADD_FAILURE() << view.error().message;
      continue;
    }
    const std::vector<float> values = decode_rows(*view, 0, view->rows());
    const bool is_matrix = parameter.role == ParameterRole::linear ||
                           parameter.role == ParameterRole::lm_head ||
                           parameter.role == ParameterRole::embedding;
    if (!is_matrix) {
      weights->add(parameter.name, parameter.shape, values);
      continue;
    }
    weights->add(parameter.name, parameter.shape, values, codec);
    if (!decoded) continue;
    const auto encoded = weights->find(parameter.name);
    weights->add(parameter.name, parameter.shape, decode_rows(*encoded, 0, encoded->rows()));
  }
  return weights;
}

}  // namespace hexlm
