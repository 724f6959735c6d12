#include <cstring>

#include "backends/cpu/steps.hpp"

namespace hexlm {
namespace {

/// Queries of one unit of work: fixed, so that kernels that work on several queries at once group them the
/// same way whatever the number of threads.
constexpr int64_t tokens_per_unit = 32;

class AttentionStep final : public Step {
 public:
  AttentionStep(const StepMaker& maker, const Node& node, const op::Attention& op)
      : query_(maker.bind(node.inputs[0])),
        key_(maker.bind(node.inputs[1])),
        value_(maker.bind(node.inputs[2])),
        output_(maker.bind(node.output)),
        op_(op),
        state_(*node.state),
        half_(maker.options.precision != Precision::high) {}

  void run(const RunContext& context) override {
    const KeyValueCache cache = context.state.cache(state_);
    append(context, cache);
    const int64_t tokens = context.symbols.tokens;
    const int64_t ranges = (tokens + tokens_per_unit - 1) / tokens_per_unit;
    const int64_t units = ranges * op_.key_value_heads;
    const int64_t seen = context.state.length() + tokens;
    const int64_t unit_tokens = std::min(tokens, tokens_per_unit);
    const int64_t work = 2 * unit_tokens * seen * op_.head_dim * (op_.query_heads / op_.key_value_heads);
    // The last ranges see the most entries: handed out first, they do not finish last.
    const int64_t grain = work * units < least_parallel_work ? units : 1;
    context.pool.run(units, grain, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t range = ranges - 1 - unit / op_.key_value_heads;
        attend(context, cache, unit % op_.key_value_heads, range * tokens_per_unit,
               context.worker_scratch(worker));
      }
    });
  }

 private:
  void append(const RunContext& context, const KeyValueCache& cache) {
    const int64_t tokens = context.symbols.tokens;
    const int64_t width = op_.key_value_heads * op_.head_dim;
    context.pool.run(tokens, grain_of(context.pool, tokens, width * 4), [&](int64_t begin, int64_t end, int) {
      for (int64_t token = begin; token < end; ++token) {
        for (int64_t head = 0; head < op_.key_value_heads; ++head) {
          const int64_t from = token * width + head * op_.head_dim;
          const int64_t to = head * cache.head_stride + (context.state.length() + token) * op_.head_dim;
          store(context.kernels, key_.floats() + from, cache.keys, to);
          store(context.kernels, value_.floats() + from, cache.values, to);
        }
      }
    });
  }

  void store(const KernelSet& kernels, const float* x, std::byte* cache, int64_t to) const {
    if (half_) {
      kernels.store_half(x, reinterpret_cast<uint16_t*>(cache) + to, op_.head_dim);
    } else {
      std::memcpy(reinterpret_cast<float*>(cache) + to, x, static_cast<size_t>(op_.head_dim) * sizeof(float));
    }
  }

  void attend(const RunContext& context, const KeyValueCache& cache, int64_t head, int64_t token_begin,
              float* scratch) const {
    const int64_t group = op_.query_heads / op_.key_value_heads;
    const int64_t head_bytes = head * cache.head_stride * (half_ ? 2 : 4);
    AttentionArguments arguments;
    arguments.query = query_.floats() + head * group * op_.head_dim;
    arguments.query_stride = op_.query_heads * op_.head_dim;
    arguments.heads = group;
    arguments.head_dim = op_.head_dim;
    arguments.keys = cache.keys + head_bytes;
    arguments.values = cache.values + head_bytes;
    arguments.half_cache = half_;
    arguments.past = context.state.length();
    arguments.token_begin = token_begin;
    arguments.token_end = std::min(token_begin + tokens_per_unit, context.symbols.tokens);
    arguments.scale = op_.scale;
    arguments.output = output_.floats() + head * group * op_.head_dim;
    arguments.output_stride = op_.query_heads * op_.head_dim;
    arguments.scratch = scratch;
    context.kernels.attention(arguments);
  }

  Binding query_;
  Binding key_;
  Binding value_;
  Binding output_;
  op::Attention op_;
  StateId state_;
  bool half_;
};

}  // namespace

std::unique_ptr<Step> make_attention_step(const StepMaker& maker, const Node& node, const op::Attention& op) {
  return std::make_unique<AttentionStep>(maker, node, op);
}

}  // namespace hexlm
