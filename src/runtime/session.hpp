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
#include "runtime/prompt.hpp"

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
  /// Another sequence on the same prepared weights.
  Result<std::unique_ptr<StateSet>> create_state() const { return plan_->create_state(); }
  /// Exchanges the sequence with one that `create_state` made.
  void swap_state(std::unique_ptr<StateSet>& other) { state_.swap(other); }
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
  /// As above for tokens that stand for images. Positions continue where the sequence stands: an image takes
  /// as many as its longer side has tokens. Errors: also bad_input when tokens and images don't match,
  /// unsupported for images with a model that sees none.
  Status forward(const Prompt& prompt, int64_t wanted, const LogitsCallback& callback,
                 Observer* observer = nullptr);
  /// The last token's logits [vocabulary]; valid until the next call.
  Result<std::span<const float>> forward_last(std::span<const int32_t> tokens);
  Result<std::span<const float>> forward_last(const Prompt& prompt);

 private:
  Session() = default;
  Status check_tokens(std::span<const int32_t> tokens) const;
  Status check_images(const Prompt& prompt) const;
  /// What one forward pass appends: tokens and, when they show images, where those are.
  struct Feed;
  Status append(const Feed& feed, int64_t wanted, const LogitsCallback& callback, Observer* observer);
  Status step(const Feed& feed, int64_t first, int64_t count, int64_t rows, Observer* observer);
  void fill_positions(const Feed& feed, int64_t first, int64_t count);
  /// Copies what the step shows of the images to its inputs; returns the number of rows.
  int64_t fill_images(const Feed& feed, int64_t first, int64_t count);
  /// What to add to a token's index to get its position, where the sequence stands.
  int64_t rope_delta();
  std::shared_ptr<const Model> model_;
  SessionOptions options_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<StateSet> state_;
  std::vector<float> logits_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> rows_;
  std::vector<int32_t> image_index_;
  /// Rows of features, then of each deepstack level, for one step; empty until there are images.
  std::vector<std::vector<float>> image_rows_;
  std::vector<const void*> inputs_;
  /// From `index` on, positions are `delta` above the index. Rising; dropped when the state is rewound below.
  struct Delta {
    int64_t index = 0;
    int64_t delta = 0;
  };
  std::vector<Delta> deltas_;
  int64_t max_rows_ = 1;
};

}  // namespace hexlm
