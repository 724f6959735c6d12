#include <cstring>
#include <utility>

#include "backends/cpu/steps.hpp"

namespace hexlm {
namespace {

/// Query tokens of one unit of work: with any number of heads a whole number of the tiles (48 query rows)
/// that kernels take at a time.
constexpr int64_t tokens_per_unit = 48;

/// How the queries are shared out: `heads` query heads of one key/value head and a range of tokens each. A
/// query's result doesn't depend on which others are computed with it, so the shares may follow the number of
/// threads.
struct Shares {
  int64_t ranges;  ///< of tokens
  int64_t heads;   ///< query heads in a share
  int64_t parts;   ///< shares of one key/value head's query heads
};

Shares share_out(int64_t tokens, int64_t group, int64_t key_value_heads, int threads) {
  Shares shares{(tokens + tokens_per_unit - 1) / tokens_per_unit, group, 1};
  // Decoding has one token, and often fewer key/value heads than there are threads.
  const int64_t units = shares.ranges * key_value_heads;
  if (units < threads) shares.heads = std::max<int64_t>(1, group * units / threads);
  shares.parts = (group + shares.heads - 1) / shares.heads;
  return shares;
}

class AttentionStep final : public Step {
 public:
  AttentionStep(const StepMaker& maker, const Node& node, const op::Attention& op)
      : query_(maker.bind(node.inputs[0])),
        key_(maker.bind(node.inputs[1])),
        value_(maker.bind(node.inputs[2])),
        output_(maker.bind(node.output)),
        op_(op),
        state_(*node.state),
        cache_(maker.options.cache.value_or(default_cache(maker.options.precision))) {}

  void run(const RunContext& context) override {
    const KeyValueCache cache = context.state.cache(state_);
    append(context, cache);
    const int64_t tokens = context.symbols.tokens;
    const int64_t group = op_.query_heads / op_.key_value_heads;
    const Shares shares = share_out(tokens, group, op_.key_value_heads, context.pool.threads());
    const int64_t units = shares.ranges * op_.key_value_heads * shares.parts;
    const int64_t seen = context.state.length() + tokens;
    const int64_t work = 2 * std::min(tokens, tokens_per_unit) * seen * op_.head_dim * shares.heads;
    const int64_t grain = work * units < least_parallel_work ? units : 1;
    context.pool.run(units, grain, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t part = unit % shares.parts;
        const int64_t head = unit / shares.parts % op_.key_value_heads;
        // The last ranges see the most entries: handed out first, they don't finish last.
        const int64_t range = shares.ranges - 1 - unit / shares.parts / op_.key_value_heads;
        const int64_t first = part * shares.heads;
        attend(context, cache, head, {first, std::min(first + shares.heads, group)}, range * tokens_per_unit,
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
          const int64_t scale = head * cache.scale_stride + context.state.length() + token;
          store(context.kernels, key_.floats() + from, cache.keys, to, cache.key_scales, scale);
          store(context.kernels, value_.floats() + from, cache.values, to, cache.value_scales, scale);
        }
      }
    });
  }

  /// One head's key or value to element `to` of the cache, and its scale to number `scale` of the scales.
  void store(const KernelSet& kernels, const float* x, std::byte* cache, int64_t to, float* scales,
             int64_t scale) const {
    switch (cache_) {
      case CacheType::f32:
        std::memcpy(reinterpret_cast<float*>(cache) + to, x,
                    static_cast<size_t>(op_.head_dim) * sizeof(float));
        return;
      case CacheType::f16:
        return kernels.store_half(x, reinterpret_cast<uint16_t*>(cache) + to, op_.head_dim);
      case CacheType::int8:
        return kernels.store_int8(x, reinterpret_cast<int8_t*>(cache) + to, scales + scale, op_.head_dim);
    }
  }

  /// Query heads first … second−1 of key/value head `head`.
  void attend(const RunContext& context, const KeyValueCache& cache, int64_t head,
              std::pair<int64_t, int64_t> query_heads, int64_t token_begin, float* scratch) const {
    const int64_t first = head * (op_.query_heads / op_.key_value_heads) + query_heads.first;
    const int64_t head_offset = head * cache.head_stride * element_bytes(cache_);
    AttentionArguments arguments;
    arguments.query = query_.floats() + first * op_.head_dim;
    arguments.query_stride = op_.query_heads * op_.head_dim;
    arguments.heads = query_heads.second - query_heads.first;
    arguments.head_dim = op_.head_dim;
    arguments.cache = cache_;
    arguments.keys = cache.keys + head_offset;
    arguments.values = cache.values + head_offset;
    if (cache_ == CacheType::int8) {
      arguments.key_scales = cache.key_scales + head * cache.scale_stride;
      arguments.value_scales = cache.value_scales + head * cache.scale_stride;
    }
    arguments.past = context.state.length();
    arguments.token_begin = token_begin;
    arguments.token_end = std::min(token_begin + tokens_per_unit, context.symbols.tokens);
    arguments.scale = op_.scale;
    arguments.output = output_.floats() + first * op_.head_dim;
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
  CacheType cache_;
};

}  // namespace

std::unique_ptr<Step> make_attention_step(const StepMaker& maker, const Node& node, const op::Attention& op) {
  return std::make_unique<AttentionStep>(maker, node, op);
}

}  // namespace hexlm
