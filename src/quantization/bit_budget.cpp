#include "quantization/bit_budget.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "base/thread_pool.hpp"
#include "formats/package.hpp"
#include "formats/two_level.hpp"
#include "graph/extract.hpp"
#include "quantization/encode.hpp"
#include "quantization/overlay_weights.hpp"

namespace hexlm {
namespace {

constexpr int64_t budget_steps = 8192;
constexpr std::array widths = {2, 3, 4, 5, 6, 8};
/// At 3 bits the damage stands clear of rounding noise and is still small enough to be in proportion to the
/// squared error.
constexpr int probe_bits = 3;
/// Reference logits are kept for all tokens: 256 MB of them.
constexpr int64_t most_logits = int64_t{1} << 26;
constexpr int64_t most_tokens = 8192;
/// Products of tokens, tensors and weights a probe may take: about a quarter of an hour on two cores.
constexpr double most_work = 6e13;
constexpr int64_t window = 128;
constexpr SymbolValues window_sizes{window, window, 0};

/// Row-major floats of the rounded weight, and its squared error relative to its norm.
struct Rounded {
  std::vector<float> values;
  double error = 0;
};

Rounded round_weight(const WeightView& view, const Codec& codec, ThreadPool& pool) {
  const int64_t rows = view.rows();
  const int64_t columns = view.columns();
  constexpr int64_t block = 32;
  const int64_t blocks = (rows + block - 1) / block;
  Rounded rounded;
  rounded.values.resize(static_cast<size_t>(rows * columns));
  std::vector<double> errors(static_cast<size_t>(blocks));
  std::vector<double> norms(static_cast<size_t>(blocks));
  const size_t row_bytes = view.data.bytes.size() / static_cast<size_t>(rows);
  pool.run(blocks, 1, [&](int64_t begin, int64_t end, int) {
    EncodedRows encoded;
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * block;
      const int64_t count = std::min(block, rows - first);
      // A fault leaves zeros: the export itself reports it.
      if (encode_rows(view.data.bytes.data() + static_cast<size_t>(first) * row_bytes, view.data.dtype, count,
                      columns, codec, Method::mse, encoded)) {
        continue;
      }
      WeightView part;
      part.codec = codec.expanded();
      part.shape = {count, columns};
      part.data.bytes = encoded.data;
      std::vector<uint16_t> scales = encoded.scales;
      if (codec.is_two_level()) {
        scales = expand_scales(codec, count, columns, encoded.group_scales,
                               std::as_bytes(std::span(encoded.scales)));
      }
      part.scales.bytes = std::as_bytes(std::span(scales));
      part.offsets.bytes = std::as_bytes(std::span(encoded.offsets));
      const std::vector<float> values = decode_rows(part, 0, count);
      std::copy(values.begin(), values.end(), rounded.values.begin() + first * columns);
      errors[static_cast<size_t>(b)] = encoded.squared_error;
      norms[static_cast<size_t>(b)] = encoded.squared_norm;
    }
  });
  double error = 0;
  double norm = 0;
  for (size_t b = 0; b < errors.size(); ++b) error += errors[b], norm += norms[b];
  rounded.error = norm > 0 ? error / norm : 0;
  return rounded;
}

/// Next-token distributions of the float model on a few windows, and how far a changed model is from them.
class Probe {
 public:
  Probe(const Graph& graph, std::shared_ptr<const WeightSource> weights, const GraphRunner& runner,
        int threads)
      : graph_(graph),
        weights_(std::make_shared<OverlayWeights>(std::move(weights))),
        runner_(runner),
        pool_(threads),
        vocabulary_(graph.value(graph.outputs()[0]).shape.back().value) {
    for (int64_t i = 0; i < 3 * window; ++i) positions_.push_back(static_cast<int32_t>(i % window));
    for (int64_t i = 0; i < window; ++i) rows_.push_back(static_cast<int32_t>(i));
  }

  ThreadPool& pool() { return pool_; }

  /// Takes `tokens` tokens' worth of windows, spread over the sequences, and runs the float model.
  Status start(const std::vector<std::vector<int32_t>>& sequences, int64_t tokens) {
    std::vector<std::vector<int32_t>> windows;
    for (const auto& sequence : sequences) {
      if (static_cast<int64_t>(sequence.size()) >= window) {
        windows.emplace_back(sequence.begin(), sequence.begin() + window);
      }
    }
    const auto wanted = static_cast<size_t>(std::max<int64_t>(1, tokens / window));
    if (windows.empty()) {
      return fail(ErrorCode::bad_input,
                  fmt::format("--target-bits: no calibration sample has {} tokens", window),
                  "use longer calibration text");
    }
    const size_t step = std::max<size_t>(1, windows.size() / wanted);
    for (size_t i = 0; i < windows.size() && states_.size() < wanted; i += step) HEXLM_TRY(embed(windows[i]));
    return logits(0, [&](size_t i, const std::vector<float>& values) {
      reference_.resize(states_.size());
      reference_[i] = values;
      return Status();
    });
  }

  /// Brings the float hidden states to the next layer's input.
  Status next_layer(int64_t layer) {
    const auto at = static_cast<size_t>(layer);
    HEXLM_ASSIGN(const auto graph, prepare({graph_.hidden()[at]}, graph_.hidden()[at + 1]));
    for (std::vector<float>& state : states_) {
      std::vector<float> next(state.size());
      const void* const inputs[] = {state.data(), positions_.data()};
      float* const outputs[] = {next.data()};
      HEXLM_TRY(graph->run(window_sizes, std::span(inputs).first(graph->input_count()), outputs));
      state.swap(next);
    }
    return {};
  }

  /// Mean KL divergence with one weight of `layer` replaced.
  Result<double> divergence(int64_t layer, const std::string& name, std::vector<float> values) {
    weights_->replace(name, std::move(values));
    double sum = 0;
    const Status status = logits(layer, [&](size_t i, const std::vector<float>& changed) {
      sum += divergence(reference_[i], changed);
      return Status();
    });
    weights_->clear();
    if (!status) return tl::unexpected<Error>(status.error());
    return sum / static_cast<double>(static_cast<int64_t>(states_.size()) * window);
  }

 private:
  Result<std::unique_ptr<PreparedGraph>> prepare(std::vector<ValueId> from, ValueId to) const {
    HEXLM_ASSIGN(Graph part, extract(graph_, from, std::array{to}));
    return runner_.prepare(std::make_shared<const Graph>(std::move(part)), weights_, window_sizes);
  }

  Status embed(const std::vector<int32_t>& ids) {
    const ValueId first = graph_.hidden()[0];
    HEXLM_ASSIGN(const auto graph, prepare({}, first));
    std::vector<float> state(static_cast<size_t>(window * graph_.value(first).shape.back().value));
    const void* const inputs[] = {ids.data()};
    float* const outputs[] = {state.data()};
    HEXLM_TRY(graph->run(window_sizes, inputs, outputs));
    states_.push_back(std::move(state));
    return {};
  }

  template <class Use>
  Status logits(int64_t layer, Use use) {
    HEXLM_ASSIGN(const auto graph,
                 prepare({graph_.hidden()[static_cast<size_t>(layer)]}, graph_.outputs()[0]));
    std::vector<float> values(static_cast<size_t>(window * vocabulary_));
    for (size_t i = 0; i < states_.size(); ++i) {
      const void* const inputs[] = {states_[i].data(), positions_.data(), rows_.data()};
      float* const outputs[] = {values.data()};
      HEXLM_TRY(graph->run(window_sizes, inputs, outputs));
      HEXLM_TRY(use(i, values));
    }
    return {};
  }

  double divergence(const std::vector<float>& expected, const std::vector<float>& got) {
    std::vector<double> sums(window);
    pool_.run(window, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const float* p = expected.data() + t * vocabulary_;
        const float* q = got.data() + t * vocabulary_;
        sums[static_cast<size_t>(t)] = row_divergence(p, q);
      }
    });
    double sum = 0;
    for (const double value : sums) sum += value;
    return sum;
  }

  /// Σ p (log p − log q) of two rows of logits.
  double row_divergence(const float* p, const float* q) const {
    const float p_most = *std::max_element(p, p + vocabulary_);
    const float q_most = *std::max_element(q, q + vocabulary_);
    double p_sum = 0;
    double q_sum = 0;
    double cross = 0;
    for (int64_t i = 0; i < vocabulary_; ++i) {
      const double weight = std::exp(p[i] - p_most);
      p_sum += weight;
      q_sum += std::exp(q[i] - q_most);
      cross += weight * (static_cast<double>(p[i]) - p_most - (static_cast<double>(q[i]) - q_most));
    }
    return std::max(0.0, cross / p_sum - std::log(p_sum) + std::log(q_sum));
  }

  const Graph& graph_;
  std::shared_ptr<OverlayWeights> weights_;
  const GraphRunner& runner_;
  ThreadPool pool_;
  int64_t vocabulary_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> rows_;
  std::vector<std::vector<float>> states_;
  std::vector<std::vector<float>> reference_;
};

Codec with_bits(Codec codec, int bits) {
  codec.bits = bits;
  return codec;
}

std::vector<const ExportTensor*> linears_of_layer(const ExportPlan& plan, int64_t layer) {
  std::vector<const ExportTensor*> found;
  const std::string prefix = fmt::format("layers.{}.", layer);
  for (const ExportTensor& tensor : plan.tensors) {
    if (tensor.role == ParameterRole::linear && !tensor.codec.is_float() && tensor.name.starts_with(prefix)) {
      found.push_back(&tensor);
    }
  }
  return found;
}

}  // namespace

Status choose_options(std::vector<BitChoice>& choices, uint64_t budget) {
  const double step = static_cast<double>(budget) / budget_steps;
  constexpr double never = std::numeric_limits<double>::infinity();
  // least[s]: the least damage of the tensors so far within s steps; taken[i][s]: which option gave it.
  std::vector<double> least(budget_steps + 1, 0);
  std::vector<std::vector<uint8_t>> taken;
  for (const BitChoice& choice : choices) {
    std::vector<double> next(budget_steps + 1, never);
    std::vector<uint8_t> option(budget_steps + 1, 0);
    for (size_t o = 0; o < choice.options.size(); ++o) {
      // Rounded up: the budget is kept, at the price of at most one step a tensor.
      const auto size = static_cast<int64_t>(std::ceil(static_cast<double>(choice.options[o].bits) / step));
      for (int64_t s = size; s <= budget_steps; ++s) {
        const double damage = least[static_cast<size_t>(s - size)] + choice.options[o].damage;
        if (damage >= next[static_cast<size_t>(s)]) continue;
        next[static_cast<size_t>(s)] = damage;
        option[static_cast<size_t>(s)] = static_cast<uint8_t>(o);
      }
    }
    least = std::move(next);
    taken.push_back(std::move(option));
  }
  if (least[budget_steps] == never) {
    return fail(ErrorCode::usage, "--target-bits: fewer bits than the smallest codecs take",
                "raise --target-bits, or choose larger groups with --quant");
  }
  int64_t left = budget_steps;
  for (size_t i = choices.size(); i-- > 0;) {
    choices[i].chosen = taken[i][static_cast<size_t>(left)];
    left -= static_cast<int64_t>(
        std::ceil(static_cast<double>(choices[i].options[choices[i].chosen].bits) / step));
  }
  return {};
}

Result<std::vector<BitChoice>> spend_bits(const ExportPlan& plan,
                                          const std::shared_ptr<const WeightSource>& weights,
                                          const std::vector<std::vector<int32_t>>& sequences,
                                          const GraphRunner& runner, double target_bits, int threads,
                                          const ProgressCallback& progress) {
  HEXLM_ASSIGN(const Graph graph, graph_of_text(plan));
  const int64_t layers = plan.config.text.layers;
  double elements = 0;
  double tensors = 0;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const ExportTensor* tensor : linears_of_layer(plan, layer)) {
      if (tensor->imported) {
        return fail(ErrorCode::unsupported,
                    fmt::format("--target-bits: '{}' is quantized already ({}) and keeps its codes",
                                tensor->name, to_string(tensor->codec)),
                    "export without --target-bits, or from the float checkpoint");
      }
      elements += static_cast<double>(tensor->shape[0] * tensor->shape[1]);
      ++tensors;
    }
  }
  if (tensors == 0)
    return fail(ErrorCode::usage, "--target-bits: the linears are float, there is nothing to choose");
  const auto tokens = static_cast<int64_t>(
      std::min({static_cast<double>(most_tokens),
                static_cast<double>(most_logits) / static_cast<double>(plan.config.text.vocabulary_size),
                most_work / (elements * tensors)}));
  Probe probe(graph, weights, runner, threads);
  HEXLM_TRY(probe.start(sequences, tokens));
  std::vector<BitChoice> choices;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const ExportTensor* tensor : linears_of_layer(plan, layer)) {
      if (progress && !progress(fmt::format("sensitivity of {}", tensor->name), choices.size(),
                                static_cast<uint64_t>(tensors))) {
        return fail(ErrorCode::interrupted, "interrupted while measuring sensitivities");
      }
      HEXLM_ASSIGN(const WeightView view, weights->find(tensor->name));
      BitChoice choice;
      choice.name = tensor->name;
      choice.elements = tensor->shape[0] * tensor->shape[1];
      Rounded probed = round_weight(view, with_bits(tensor->codec, probe_bits), probe.pool());
      const double probe_error = probed.error;
      HEXLM_ASSIGN(choice.sensitivity, probe.divergence(layer, tensor->name, std::move(probed.values)));
      for (const int bits : widths) {
        const Codec codec = with_bits(tensor->codec, bits);
        const double error = bits == probe_bits ? probe_error : round_weight(view, codec, probe.pool()).error;
        choice.options.push_back({codec, 8 * stored_bytes(codec, tensor->shape),
                                  probe_error > 0 ? choice.sensitivity * error / probe_error : 0});
      }
      choices.push_back(std::move(choice));
    }
    if (layer + 1 < layers) HEXLM_TRY(probe.next_layer(layer));
  }
  HEXLM_TRY(choose_options(choices, static_cast<uint64_t>(target_bits * elements)));
  return choices;
}

}  // namespace hexlm
