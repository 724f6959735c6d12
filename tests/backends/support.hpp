#pragma once

#include <cstdint>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "formats/checkpoint_weights.hpp"
#include "formats/json.hpp"
#include "formats/safetensors.hpp"
#include "graph/graph.hpp"
#include "kernels/kernels.hpp"
#include "models/model_config.hpp"

namespace hexlm {

/// Sets HEXLM_ISA while it lives.
class ScopedIsa {
 public:
  explicit ScopedIsa(const std::string& name);
  ~ScopedIsa();
  ScopedIsa(const ScopedIsa&) = delete;
  ScopedIsa& operator=(const ScopedIsa&) = delete;

 private:
  std::optional<std::string> before_;
};

/// Names of the kernel sets that this processor runs.
std::vector<std::string> available_isas();

/// A reference checkpoint with its transformers ground truth.
struct ReferenceCase {
  std::string name;
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const CheckpointWeights> weights;
  std::optional<SafetensorsFile> expected;
  Json facts;
  ModelConfig config;
  int64_t vocabulary = 0;

  std::vector<int32_t> tokens(const char* key) const;
  /// A float32 tensor of expected.safetensors.
  std::vector<float> tensor(const std::string& key) const;
};
ReferenceCase load_case(const std::string& name);
inline const std::vector<std::string>& case_names() {
  static const std::vector<std::string> names = {
      "qwen2_tied", "qwen2_untied_sharded", "qwen2_yarn", "qwen3", "qwen3_moe", "llama3", "qwen3_5_text"};
  return names;
}

std::unique_ptr<Plan> compile_or_fail(const std::shared_ptr<const Graph>& graph,
                                      const std::shared_ptr<const WeightSource>& weights,
                                      const PlanOptions& options);

/// One sequence on one plan of a decoder graph (ids, positions, rows -> logits).
class Runner {
 public:
  Runner(const std::shared_ptr<const Graph>& graph, const std::shared_ptr<const WeightSource>& weights,
         const PlanOptions& options);
  Plan& plan() { return *plan_; }
  StateSet& state() { return *state_; }

  /// Appends tokens in steps of up to `chunk`; returns the logits of all of them [tokens, vocabulary].
  std::vector<float> logits(std::span<const int32_t> tokens, int64_t chunk, Observer* observer = nullptr);
  /// One step; fails as `run` does.
  Status step(std::span<const int32_t> tokens, bool want_logits, std::vector<float>& logits,
              Observer* observer = nullptr);
  /// Greedy tokens after what is in the state, the first from `last_logits`.
  std::vector<int32_t> greedy(std::vector<float> last_logits, int64_t count);

 private:
  std::shared_ptr<const Graph> graph_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<StateSet> state_;
  int64_t vocabulary_ = 0;
};

/// Keeps the values that `graph.hidden()` names, all steps one after another.
class HiddenRecorder : public Observer {
 public:
  explicit HiddenRecorder(const Graph& graph);
  void after(const Node& node, const Value& value, std::span<const float> data,
             const SymbolValues& symbols) override;
  const std::vector<std::vector<float>>& hidden() const { return hidden_; }

 private:
  std::map<int32_t, size_t> index_;
  std::vector<std::vector<float>> hidden_;
};

/// max |a − b| / max |b|.
double relative_error(std::span<const float> got, std::span<const float> expected);
/// ‖a − b‖ / ‖b‖
double relative_distance(std::span<const float> got, std::span<const float> expected);

/// Weights made in a test, float or encoded to any codec.
class TestWeights : public WeightSource {
 public:
  /// Stored as float32.
  void add(const std::string& name, std::vector<int64_t> shape, std::vector<float> values);
  /// Encoded by round to nearest.
  void add(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values,
           const Codec& codec);
  Result<WeightView> find(std::string_view name) const override;
  bool contains(std::string_view name) const override { return weights_.find(name) != weights_.end(); }
  void release(const WeightView& weight) const override { released_[weight.name] += 1; }
  std::string origin() const override { return "test weights"; }
  const std::map<std::string, int>& released() const { return released_; }
  std::map<std::string, WeightView, std::less<>>& views() { return weights_; }

 private:
  std::map<std::string, WeightView, std::less<>> weights_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> memory_;
  mutable std::map<std::string, int> released_;
};

/// The checkpoint's weights, matrices of the roles that export quantizes encoded to `codec`. With `decoded`,
/// the encoded values are stored as float32 instead: the same numbers for the float path.
std::shared_ptr<TestWeights> encode_case(const ReferenceCase& reference, const Codec& codec, bool decoded);

}  // namespace hexlm
