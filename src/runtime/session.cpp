#include "runtime/session.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "base/progress.hpp"
#include "vision/positions.hpp"

namespace hexlm {
namespace {

/// Logits of one step are kept to this many bytes: a vocabulary of 152 k takes 0.6 MB a row, and a whole
/// chunk of rows would be larger than a small model. Steps whose logits are wanted are made shorter instead.
constexpr int64_t logits_bytes = int64_t{64} << 20;

/// Nodes that a placement names before it says how many more there are.
constexpr size_t named_nodes = 4;

std::string name_nodes(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), named_nodes); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > named_nodes) text += fmt::format(", … {} more", names.size() - named_nodes);
  return text;
}

Result<PlanOptions> plan_options(const Model& model, const SessionOptions& options, int64_t vocabulary) {
  const int64_t limit = model.max_context();
  if (options.context < 0 || options.context > limit) {
    return fail(ErrorCode::usage,
                fmt::format("a context of {} tokens was asked for, the model has positions for 1 to {}",
                            options.context, limit));
  }
  if (options.chunk < 1) {
    return fail(ErrorCode::usage,
                fmt::format("a prefill chunk must be at least 1 token, got {}", options.chunk));
  }
  PlanOptions plan;
  plan.threads = options.threads;
  plan.processors = options.processors;
  plan.precision = options.precision;
  plan.cache = options.cache;
  plan.context = options.context == 0 ? limit : options.context;
  plan.max_tokens = std::min(options.chunk, plan.context);
  const int64_t row_bytes = vocabulary * static_cast<int64_t>(sizeof(float));
  plan.max_rows = std::clamp<int64_t>(logits_bytes / row_bytes, 1, plan.max_tokens);
  return plan;
}

}  // namespace

std::string describe_placement(const std::vector<std::string>& placement, const Graph& graph) {
  std::map<std::string, std::vector<std::string>> nodes;
  for (size_t i = 0; i < placement.size(); ++i) nodes[placement[i]].push_back(graph.nodes()[i].name);
  const auto most = std::max_element(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  if (most == nodes.end()) return "0/0 nodes";
  std::string text = fmt::format("{} {}/{} nodes", most->first, most->second.size(), placement.size());
  for (auto it = nodes.begin(); it != nodes.end(); ++it) {
    if (it == most) continue;
    text += fmt::format(", {} {} ({})", it->first, it->second.size(), name_nodes(it->second));
  }
  return text;
}

Result<std::unique_ptr<Session>> Session::create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options) {
  const int64_t vocabulary = model->config().text.vocabulary_size;
  HEXLM_ASSIGN(const PlanOptions plan_settings, plan_options(*model, options, vocabulary));
  HEXLM_ASSIGN(const auto backend, make_backend(options.backend));
  std::unique_ptr<Session> session(new Session());
  HEXLM_ASSIGN(session->plan_, backend->compile(model->graph(), model->weights(), plan_settings));
  HEXLM_ASSIGN(session->state_, session->plan_->create_state());
  session->model_ = std::move(model);
  session->options_ = options;
  session->options_.context = plan_settings.context;
  session->options_.chunk = plan_settings.max_tokens;
  session->max_rows_ = plan_settings.max_rows;
  session->positions_.resize(static_cast<size_t>(3 * plan_settings.max_tokens));
  session->rows_.resize(static_cast<size_t>(plan_settings.max_rows));
  session->inputs_.assign(session->model_->graph()->inputs().size(), nullptr);
  session->inputs_[1] = session->positions_.data();
  session->inputs_[2] = session->rows_.data();
  if (session->model_->config().vision) {
    session->image_index_.resize(static_cast<size_t>(plan_settings.max_tokens), -1);
    session->inputs_[4] = session->image_index_.data();
  }
  return session;
}

std::string Session::placement() const { return describe_placement(plan_->placement(), *model_->graph()); }

Status Session::check_tokens(std::span<const int32_t> tokens) const {
  const auto count = static_cast<int64_t>(tokens.size());
  if (count > capacity() - length()) {
    return fail(ErrorCode::limit,
                fmt::format("the context is full: it holds {} tokens, {} more don't fit its {}", length(),
                            count, capacity()),
                "shorten the input or raise --context, up to what the model has positions for");
  }
  const int64_t vocabulary = model_->config().text.vocabulary_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      return fail(ErrorCode::bad_input,
                  fmt::format("token {} of the input is id {}, the vocabulary has 0 to {}", i, tokens[i],
                              vocabulary - 1));
    }
  }
  return {};
}

struct Session::Feed {
  std::span<const int32_t> tokens;
  const RopePositions* rope = nullptr;  ///< of all tokens, when there are images
  int64_t delta = 0;                    ///< from index to position, when there are none
  /// Where each token's row of features is; null for text.
  struct Row {
    const ImageFeatures* image = nullptr;
    int64_t row = 0;
  };
  std::vector<Row> rows;
};

int64_t Session::rope_delta() {
  while (!deltas_.empty() && deltas_.back().index > length()) deltas_.pop_back();
  return deltas_.empty() ? 0 : deltas_.back().delta;
}

void Session::fill_positions(const Feed& feed, int64_t first, int64_t count) {
  const int64_t past = length();
  for (int64_t stream = 0; stream < 3; ++stream) {
    int32_t* to = positions_.data() + stream * count;
    if (feed.rope != nullptr) {
      std::copy_n(feed.rope->ids[static_cast<size_t>(stream)].data() + first, count, to);
      continue;
    }
    for (int64_t t = 0; t < count; ++t) to[t] = static_cast<int32_t>(past + feed.delta + t);
  }
}

int64_t Session::fill_images(const Feed& feed, int64_t first, int64_t count) {
  int64_t shown = 0;
  for (int64_t t = 0; t < count; ++t) {
    int32_t& index = image_index_[static_cast<size_t>(t)];
    index = -1;
    if (feed.rows.empty()) continue;
    const auto [image, row] = feed.rows[static_cast<size_t>(first + t)];
    if (image == nullptr) continue;
    for (size_t level = 0; level < image_rows_.size(); ++level) {
      const std::vector<float>& from = level == 0 ? image->features : image->deepstack[level - 1];
      std::copy_n(from.data() + row * image->width, image->width,
                  image_rows_[level].data() + shown * image->width);
    }
    index = static_cast<int32_t>(shown++);
  }
  return shown;
}

Status Session::step(const Feed& feed, int64_t first, int64_t count, int64_t rows, Observer* observer) {
  fill_positions(feed, first, count);
  for (int64_t row = 0; row < rows; ++row) {
    rows_[static_cast<size_t>(row)] = static_cast<int32_t>(count - rows + row);
  }
  const auto needed = static_cast<size_t>(rows * model_->config().text.vocabulary_size);
  if (logits_.size() < needed) logits_.resize(needed);
  inputs_[0] = feed.tokens.data() + first;
  int64_t shown = 0;
  if (model_->config().vision) {
    shown = fill_images(feed, first, count);
    inputs_[3] = image_rows_.empty() ? nullptr : image_rows_[0].data();
    for (size_t level = 1; level < image_rows_.size(); ++level) {
      inputs_[4 + level] = image_rows_[level].data();
    }
  }
  float* const outputs[] = {logits_.data()};
  return plan_->run({{count, rows, shown}, inputs_, outputs, observer}, *state_);
}

Status Session::append(const Feed& feed, int64_t wanted, const LogitsCallback& callback, Observer* observer) {
  const auto count = static_cast<int64_t>(feed.tokens.size());
  const int64_t first_wanted = count - std::clamp<int64_t>(wanted, 0, count);
  const int64_t vocabulary = model_->config().text.vocabulary_size;
  int64_t position = 0;
  while (position < count) {
    if (interrupted()) return fail(ErrorCode::interrupted, "interrupted");
    int64_t size = std::min(options_.chunk, count - position);
    // Rows of logits bound a step from the first wanted token on.
    size = std::min(size, std::max<int64_t>(first_wanted - position, 0) + max_rows_);
    const int64_t rows = std::clamp<int64_t>(position + size - first_wanted, 0, size);
    HEXLM_TRY(step(feed, position, size, rows, observer));
    if (rows > 0) {
      HEXLM_TRY(
          callback(position + size - rows, rows, {logits_.data(), static_cast<size_t>(rows * vocabulary)}));
    }
    position += size;
  }
  return {};
}

Status Session::forward(std::span<const int32_t> tokens, int64_t wanted, const LogitsCallback& callback,
                        Observer* observer) {
  HEXLM_TRY(check_tokens(tokens));
  Feed feed;
  feed.tokens = tokens;
  feed.delta = rope_delta();
  return append(feed, wanted, callback, observer);
}

Status Session::check_images(const Prompt& prompt) const {
  const std::optional<VisionConfig>& vision = model_->config().vision;
  if (!vision) return tl::unexpected<Error>(no_vision(*model_));
  for (const auto& image : prompt.images) {
    const auto elements = static_cast<size_t>(image->tokens * image->width);
    bool fits = image->width == model_->config().text.hidden_size && image->features.size() == elements &&
                image->deepstack.size() == vision->deepstack_blocks.size() &&
                image->tokens == image->grid.tokens(static_cast<int>(vision->merge_size));
    for (const auto& level : image->deepstack) fits = fits && level.size() == elements;
    if (fits) continue;
    return fail(ErrorCode::usage,
                fmt::format("image features of {} x {} with {} levels are not of this model", image->tokens,
                            image->width, image->deepstack.size()));
  }
  return {};
}

Status Session::forward(const Prompt& prompt, int64_t wanted, const LogitsCallback& callback,
                        Observer* observer) {
  if (prompt.images.empty()) return forward(std::span(prompt.tokens), wanted, callback, observer);
  HEXLM_TRY(check_images(prompt));
  HEXLM_TRY(check_tokens(prompt.tokens));
  const VisionConfig& vision = *model_->config().vision;
  std::vector<ImageGrid> grids;
  grids.reserve(prompt.images.size());
  for (const auto& image : prompt.images) grids.push_back(image->grid);
  const int64_t start = length();
  const RopeStart from{static_cast<int32_t>(start), static_cast<int32_t>(start + rope_delta())};
  HEXLM_ASSIGN(const RopePositions rope, rope_positions(prompt.tokens, vision.image_token, grids,
                                                        static_cast<int>(vision.merge_size), from));
  Feed feed;
  feed.tokens = prompt.tokens;
  feed.rope = &rope;
  feed.rows.resize(prompt.tokens.size());
  size_t image = 0;
  for (size_t t = 0; t < prompt.tokens.size();) {
    if (prompt.tokens[t] != vision.image_token) {
      ++t;
      continue;
    }
    const ImageFeatures& shown = *prompt.images[image++];
    for (int64_t row = 0; row < shown.tokens; ++row) feed.rows[t++] = {&shown, row};
    // Kept for when the sequence has come this far; `rope_delta` drops what a failure leaves out.
    const auto end = static_cast<int64_t>(t);
    const int64_t delta = t < prompt.tokens.size() ? rope.ids[0][t] - (start + end) : rope.rope_delta;
    deltas_.push_back({start + end, delta});
  }
  if (image_rows_.empty()) {
    const auto elements = static_cast<size_t>(options_.chunk * model_->config().text.hidden_size);
    image_rows_.assign(1 + vision.deepstack_blocks.size(), std::vector<float>(elements));
  }
  return append(feed, wanted, callback, observer);
}

Result<std::span<const float>> Session::forward_last(std::span<const int32_t> tokens) {
  if (tokens.empty()) return fail(ErrorCode::usage, "there are no tokens to run");
  std::span<const float> last;
  HEXLM_TRY(forward(tokens, 1, [&last](int64_t, int64_t, std::span<const float> logits) {
    last = logits;
    return Status();
  }));
  return last;
}

Result<std::span<const float>> Session::forward_last(const Prompt& prompt) {
  if (prompt.tokens.empty()) return fail(ErrorCode::usage, "there are no tokens to run");
  std::span<const float> last;
  HEXLM_TRY(forward(prompt, 1, [&last](int64_t, int64_t, std::span<const float> logits) {
    last = logits;
    return Status();
  }));
  return last;
}

}  // namespace hexlm
