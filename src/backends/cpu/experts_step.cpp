#include <cmath>
#include <cstring>
#include <vector>

#include "backends/cpu/steps.hpp"

namespace hexlm {
namespace {

/// One (token, expert) pair is a slot; slots are sorted by expert, then token, so that each expert's rows lie
/// together. All arrays lie in the step's scratch memory.
struct ExpertsMemory {
  float* rows = nullptr;      ///< [slots, H]: the tokens' x, later the experts' outputs
  float* gate = nullptr;      ///< [slots, I]
  float* up = nullptr;        ///< [slots, I]
  float* inner = nullptr;     ///< [slots, I] silu(gate) · up
  float* weights = nullptr;   ///< [T, top_k], by rising expert
  int32_t* chosen = nullptr;  ///< [T, top_k] experts, rising
  int32_t* slots = nullptr;   ///< [T, top_k] the slot of each choice
  int32_t* tokens = nullptr;  ///< [slots] the token of each slot
  int32_t* begin = nullptr;   ///< [E + 1] first slot of each expert
  int32_t* active = nullptr;  ///< [E] experts with slots
  int64_t bytes = 0;
};

/// With no memory it only counts the bytes.
ExpertsMemory lay_out(const op::MixtureOfExperts& op, int64_t hidden, int64_t tokens, std::byte* memory) {
  const int64_t slots = tokens * op.top_k;
  ExpertsMemory layout;
  const auto take = [&](int64_t count) {
    std::byte* at = memory == nullptr ? nullptr : memory + layout.bytes;
    layout.bytes += (count * 4 + arena_alignment - 1) / arena_alignment * arena_alignment;
    return at;
  };
  const auto floats = [&](int64_t count) { return reinterpret_cast<float*>(take(count)); };
  const auto integers = [&](int64_t count) { return reinterpret_cast<int32_t*>(take(count)); };
  layout.rows = floats(slots * hidden);
  layout.gate = floats(slots * op.intermediate);
  layout.up = floats(slots * op.intermediate);
  layout.inner = floats(slots * op.intermediate);
  layout.weights = floats(slots);
  layout.chosen = integers(slots);
  layout.slots = integers(slots);
  layout.tokens = integers(slots);
  layout.begin = integers(op.experts + 1);
  layout.active = integers(op.experts);
  return layout;
}

/// softmax in float over all experts, in place.
void softmax(float* x, int64_t count) {
  float largest = x[0];
  for (int64_t i = 1; i < count; ++i) largest = std::max(largest, x[i]);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i] = std::exp(x[i] - largest);
  for (int64_t i = 0; i < count; ++i) x[i] /= sum;
}

/// The most probable expert that is not taken, the lowest on ties; taken ones bear −1.
int32_t most_probable(const float* probabilities, int64_t experts) {
  int32_t best = -1;
  for (int32_t e = 0; e < experts; ++e) {
    if (probabilities[e] < 0) continue;
    if (best < 0 || probabilities[e] > probabilities[best]) best = e;
  }
  return best;
}

class ExpertsStep final : public Step {
 public:
  struct Expert {
    const PreparedMatrix* gate;
    const PreparedMatrix* up;
    const PreparedMatrix* down;
  };

  ExpertsStep(const StepMaker& maker, const Node& node, const op::MixtureOfExperts& op)
      : x_(maker.bind(node.inputs[0])),
        logits_(maker.bind(node.inputs[1])),
        y_(maker.bind(node.output)),
        op_(op),
        hidden_(maker.columns(node.output)),
        rows_(maker.rows(node.output)),
        quantized_(&maker.quantized),
        memory_(lay_out(op, hidden_, maker.options.max_tokens, maker.scratch)) {
    experts_.reserve(static_cast<size_t>(op.experts));
    for (size_t i = 0; i < node.parameters.size(); i += 3) {
      experts_.push_back({&maker.weights.matrix(node.parameters[i]),
                          &maker.weights.matrix(node.parameters[i + 1]),
                          &maker.weights.matrix(node.parameters[i + 2])});
      input_blocks_.add(*experts_.back().gate);
      input_blocks_.add(*experts_.back().up);
      inner_blocks_.add(*experts_.back().down);
    }
  }

  void run(const RunContext& context) override {
    const int64_t tokens = rows_.at(context.symbols);
    if (tokens == 0) return;
    const int64_t slots = tokens * op_.top_k;
    route(context, tokens);
    const int64_t active = sort_by_expert(tokens);
    gather(context, slots);
    input_blocks_.quantize_all(context, memory_.rows, slots, *quantized_);
    expand(context, slots, active);
    activate(context, slots);
    inner_blocks_.quantize_all(context, memory_.inner, slots, *quantized_);
    contract(context, slots, active);
    combine(context, tokens);
  }

 private:
  /// A matrix of each block size that the experts' packed weights use.
  struct Blocks {
    const PreparedMatrix* of_32 = nullptr;
    const PreparedMatrix* of_64 = nullptr;

    void add(const PreparedMatrix& matrix) {
      if (!matrix.is_packed) return;
      (matrix.packed.block == 32 ? of_32 : of_64) = &matrix;
    }
    void quantize_all(const RunContext& context, const float* x, int64_t rows, QuantizedBuffers& out) const {
      if (of_32 != nullptr) quantize(context, x, rows, *of_32, out.of_32);
      if (of_64 != nullptr) quantize(context, x, rows, *of_64, out.of_64);
    }
  };

  /// Each token's experts by rising number, and their weights (spec A.2).
  void route(const RunContext& context, int64_t tokens) {
    const int64_t grain = grain_of(context.pool, tokens, op_.experts * (op_.top_k + 16));
    context.pool.run(tokens, grain, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t token = begin; token < end; ++token) choose(token, context.worker_scratch(worker));
    });
  }

  void choose(int64_t token, float* probabilities) {
    const float* logits = logits_.floats() + token * op_.experts;
    std::copy(logits, logits + op_.experts, probabilities);
    softmax(probabilities, op_.experts);
    int32_t* chosen = memory_.chosen + token * op_.top_k;
    float* weights = memory_.weights + token * op_.top_k;
    float sum = 0;
    for (int64_t i = 0; i < op_.top_k; ++i) {
      const int32_t expert = most_probable(probabilities, op_.experts);
      const float weight = probabilities[expert];
      probabilities[expert] = -1;
      sum += weight;
      int64_t at = i;
      for (; at > 0 && chosen[at - 1] > expert; --at) {
        chosen[at] = chosen[at - 1];
        weights[at] = weights[at - 1];
      }
      chosen[at] = expert;
      weights[at] = weight;
    }
    if (!op_.normalize) return;
    for (int64_t i = 0; i < op_.top_k; ++i) weights[i] /= sum;
  }

  /// Counting sort, stable over tokens. Returns how many experts have slots.
  int64_t sort_by_expert(int64_t tokens) {
    int32_t* begin = memory_.begin;
    std::fill(begin, begin + op_.experts + 1, 0);
    const int64_t choices = tokens * op_.top_k;
    for (int64_t i = 0; i < choices; ++i) ++begin[memory_.chosen[i] + 1];
    int64_t active = 0;
    for (int32_t e = 0; e < op_.experts; ++e) {
      if (begin[e + 1] > 0) memory_.active[active++] = e;
      begin[e + 1] += begin[e];
    }
    for (int64_t i = 0; i < choices; ++i) {
      const int32_t slot = begin[memory_.chosen[i]]++;
      memory_.slots[i] = slot;
      memory_.tokens[slot] = static_cast<int32_t>(i / op_.top_k);
    }
    for (int64_t e = op_.experts; e > 0; --e) begin[e] = begin[e - 1];
    begin[0] = 0;
    return active;
  }

  void gather(const RunContext& context, int64_t slots) {
    const float* x = x_.floats();
    context.pool.run(slots, grain_of(context.pool, slots, hidden_), [&](int64_t begin, int64_t end, int) {
      for (int64_t slot = begin; slot < end; ++slot) {
        std::memcpy(memory_.rows + slot * hidden_, x + memory_.tokens[slot] * hidden_,
                    static_cast<size_t>(hidden_) * sizeof(float));
      }
    });
  }

  static int64_t tile_pairs(const PreparedMatrix& matrix) {
    return (matrix.tiles() + tile_multiple - 1) / tile_multiple;
  }

  /// One pair of tiles of an expert's matrix times that expert's slots.
  void multiply_pair(const RunContext& context, int32_t expert, const PreparedMatrix& matrix, const float* x,
                     float* y, int64_t pair, float* scratch) const {
    const int64_t tile = pair * tile_multiple;
    const int64_t first = memory_.begin[expert];
    LinearInput input;
    input.x = x + first * matrix.columns;
    input.rows = memory_.begin[expert + 1] - first;
    if (matrix.is_packed) input.quantized = &quantized_->of(matrix.packed.block);
    input.first_quantized = first;
    multiply(context.kernels, matrix, input, nullptr, y + first * matrix.rows, matrix.rows, tile,
             std::min(tile + tile_multiple, matrix.tiles()), scratch);
  }

  /// gate and up of all active experts as one loop, so that decoding doesn't start a loop an expert.
  void expand(const RunContext& context, int64_t slots, int64_t active) {
    const int64_t pairs = tile_pairs(*experts_[0].gate);
    const int64_t work = tile_multiple * packed_tile_rows * hidden_ * slots / active;
    const int64_t units = active * 2 * pairs;
    context.pool.run(units, grain_of(context.pool, units, work), [&](int64_t begin, int64_t end, int worker) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int32_t expert = memory_.active[unit / (2 * pairs)];
        const bool is_up = unit / pairs % 2 != 0;
        const Expert& matrices = experts_[static_cast<size_t>(expert)];
        multiply_pair(context, expert, is_up ? *matrices.up : *matrices.gate, memory_.rows,
                      is_up ? memory_.up : memory_.gate, unit % pairs, context.worker_scratch(worker));
      }
    });
  }

  /// By whole slots, so that where the loop is cut never changes a result.
  void activate(const RunContext& context, int64_t slots) {
    const int64_t width = op_.intermediate;
    context.pool.run(slots, grain_of(context.pool, slots, width * 4), [&](int64_t begin, int64_t end, int) {
      for (int64_t slot = begin; slot < end; ++slot) {
        context.kernels.silu_multiply(memory_.gate + slot * width, memory_.up + slot * width,
                                      memory_.inner + slot * width, width);
      }
    });
  }

  void contract(const RunContext& context, int64_t slots, int64_t active) {
    const int64_t pairs = tile_pairs(*experts_[0].down);
    const int64_t work = tile_multiple * packed_tile_rows * op_.intermediate * slots / active;
    const int64_t units = active * pairs;
    context.pool.run(units, grain_of(context.pool, units, work), [&](int64_t begin, int64_t end, int worker) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int32_t expert = memory_.active[unit / pairs];
        multiply_pair(context, expert, *experts_[static_cast<size_t>(expert)].down, memory_.inner,
                      memory_.rows, unit % pairs, context.worker_scratch(worker));
      }
    });
  }

  /// Sums each token's experts by rising number, as transformers adds them.
  void combine(const RunContext& context, int64_t tokens) {
    context.pool.run(tokens, grain_of(context.pool, tokens, hidden_ * op_.top_k),
                     [&](int64_t begin, int64_t end, int) {
                       for (int64_t token = begin; token < end; ++token) {
                         float* y = y_.floats() + token * hidden_;
                         std::fill(y, y + hidden_, 0.0F);
                         for (int64_t i = token * op_.top_k; i < (token + 1) * op_.top_k; ++i) {
                           const float* row = memory_.rows + memory_.slots[i] * hidden_;
                           for (int64_t column = 0; column < hidden_; ++column)
                             y[column] += memory_.weights[i] * row[column];
                         }
                       }
                     });
  }

  Binding x_;
  Binding logits_;
  Binding y_;
  op::MixtureOfExperts op_;
  int64_t hidden_;
  Extent rows_;
  QuantizedBuffers* quantized_;
  ExpertsMemory memory_;
  std::vector<Expert> experts_;
  Blocks input_blocks_;
  Blocks inner_blocks_;
};

}  // namespace

int64_t experts_scratch_bytes(const op::MixtureOfExperts& op, int64_t hidden, int64_t tokens) {
  return lay_out(op, hidden, tokens, nullptr).bytes;
}

std::unique_ptr<Step> make_experts_step(const StepMaker& maker, const Node& node,
                                        const op::MixtureOfExperts& op) {
  return std::make_unique<ExpertsStep>(maker, node, op);
}

}  // namespace hexlm
