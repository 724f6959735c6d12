#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "base/error.hpp"
#include "runtime/model.hpp"

namespace hexlm {

struct SessionOptions {
  std::string backend = "cpu";
  int threads = 1;
  Precision precision = Precision::normal;
  int64_t context = 0;  ///< 0: Model::max_context
  int64_t chunk = 512;  ///< tokens per prefill step
};

/// "cpu 214/214 nodes", "hexagon 196/198 nodes, cpu 2 (embedding, lm_head)"
std::string describe_placement(const std::vector<std::string>& placement, const Graph& graph);

/// One sequence on one backend: positions, state, chunked prefill.
class Session {
 public:
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options);

  const Model& model() const { return *model_; }
  const SessionOptions& options() const { return options_; }
  /// Tokens in the cache.
  int64_t length() const { return state_->length(); }
  int64_t capacity() const { return state_->capacity(); }
  StateSet& state() { return *state_; }
  Plan& plan() { return *plan_; }
  std::string placement() const;
  void reset() { state_->reset(); }
  /// Applies adapters, unmerged, from the next token on; empty removes them. What is in the state was
  /// computed without them: `reset` first to start anew. Errors: as Plan::set_low_rank.
  Status set_adapters(std::vector<LowRankUpdate> updates) { return plan_->set_low_rank(std::move(updates)); }

  /// Called with each block of logits rows in order: `first` is the index, among the tokens passed to
  /// `forward`, of the first row; `logits` is [rows, vocabulary]. Returning an error stops the forward pass.
  using LogitsCallback = std::function<Status(int64_t first, int64_t rows, std::span<const float> logits)>;

  /// Appends tokens in chunks; logits of the last `wanted` of them go to `callback` (chunk by chunk).
  /// Errors: limit when the context is too small (names tokens held, added and capacity); bad_input for an id
  /// outside the vocabulary; interrupted when the process was interrupted between chunks.
  Status forward(std::span<const int32_t> tokens, int64_t wanted, const LogitsCallback& callback,
                 Observer* observer = nullptr);
  /// The last token's logits [vocabulary]; valid until the next call.
  Result<std::span<const float>> forward_last(std::span<const int32_t> tokens);

 private:
  Session() = default;
  Status check_tokens(std::span<const int32_t> tokens) const;
  Status step(std::span<const int32_t> tokens, int64_t rows, Observer* observer);
  std::shared_ptr<const Model> model_;
  SessionOptions options_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<StateSet> state_;
  std::vector<float> logits_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> rows_;
  int64_t max_rows_ = 1;
};

}  // namespace hexlm
