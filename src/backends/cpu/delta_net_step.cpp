#include <cmath>

#include "backends/cpu/steps.hpp"

namespace hexlm {
namespace {

/// Channels at a time: two cache lines of floats, so that workers don't write to the same line.
constexpr int64_t channel_multiple = 32;

class ConvolutionStep final : public Step {
 public:
  ConvolutionStep(const StepMaker& maker, const Node& node, const op::CausalConvolution& op)
      : x_(maker.bind(node.inputs[0])),
        y_(maker.bind(node.output)),
        channels_(maker.columns(node.output)),
        taps_(op.taps),
        weight_(maker.weights.vector(node.parameters[0])),
        state_(*node.state) {}

  void run(const RunContext& context) override {
    const int64_t tokens = context.symbols.tokens;
    float* history = context.state.recurrent(state_);
    context.pool.run(channels_, grain_of(context.pool, channels_, tokens * (taps_ + 4), channel_multiple),
                     [&](int64_t begin, int64_t end, int) {
                       context.kernels.causal_convolution(x_.floats(), tokens, channels_, weight_, taps_,
                                                          history, y_.floats(), begin, end);
                     });
  }

 private:
  Binding x_;
  Binding y_;
  int64_t channels_;
  int64_t taps_;
  const float* weight_;
  StateId state_;
};

/// softplus as PyTorch computes it: the identity above 20.
float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

class DeltaNetStep final : public Step {
 public:
  DeltaNetStep(const StepMaker& maker, const Node& node, const op::GatedDeltaNet& op)
      : qkv_(maker.bind(node.inputs[0])),
        b_(maker.bind(node.inputs[1])),
        a_(maker.bind(node.inputs[2])),
        output_(maker.bind(node.output)),
        op_(op),
        log_rate_(maker.weights.vector(node.parameters[0])),
        rate_bias_(maker.weights.vector(node.parameters[1])),
        state_(*node.state),
        log_decay_(reinterpret_cast<float*>(maker.scratch)),
        beta_(log_decay_ + maker.options.max_tokens * op.value_heads) {}

  void run(const RunContext& context) override {
    compute_gates(context);
    const int64_t work = context.symbols.tokens * op_.key_dim * op_.value_dim * 4;
    context.pool.run(op_.value_heads, grain_of(context.pool, op_.value_heads, work),
                     [&](int64_t begin, int64_t end, int worker) {
                       for (int64_t head = begin; head < end; ++head) {
                         run_head(context, head, context.worker_scratch(worker));
                       }
                     });
  }

 private:
  /// Spec A.4 step 4, [T, Hv] each.
  void compute_gates(const RunContext& context) {
    const float* a = a_.floats();
    const float* b = b_.floats();
    const int64_t tokens = context.symbols.tokens;
    // Four exponentials or logarithms an element.
    const int64_t grain = grain_of(context.pool, tokens, op_.value_heads * 64);
    context.pool.run(tokens, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin * op_.value_heads; i < end * op_.value_heads; ++i) {
        const int64_t head = i % op_.value_heads;
        beta_[i] = 1.0F / (1.0F + std::exp(-b[i]));
        log_decay_[i] = -std::exp(log_rate_[head]) * softplus(a[i] + rate_bias_[head]);
      }
    });
  }

  void run_head(const RunContext& context, int64_t head, float* scratch) {
    const int64_t key_width = op_.key_heads * op_.key_dim;
    const int64_t key_head = head / (op_.value_heads / op_.key_heads);
    const float* qkv = qkv_.floats();
    DeltaNetArguments arguments;
    arguments.query = qkv + key_head * op_.key_dim;
    arguments.key = qkv + key_width + key_head * op_.key_dim;
    arguments.value = qkv + 2 * key_width + head * op_.value_dim;
    arguments.stride = 2 * key_width + op_.value_heads * op_.value_dim;
    arguments.log_decay = log_decay_ + head;
    arguments.beta = beta_ + head;
    arguments.gate_stride = op_.value_heads;
    arguments.tokens = context.symbols.tokens;
    arguments.key_dim = op_.key_dim;
    arguments.value_dim = op_.value_dim;
    arguments.epsilon = op_.norm_epsilon;
    arguments.state = context.state.recurrent(state_) + head * op_.key_dim * op_.value_dim;
    arguments.output = output_.floats() + head * op_.value_dim;
    arguments.output_stride = op_.value_heads * op_.value_dim;
    arguments.scratch = scratch;
    context.kernels.delta_net(arguments);
  }

  Binding qkv_;
  Binding b_;
  Binding a_;
  Binding output_;
  op::GatedDeltaNet op_;
  const float* log_rate_;
  const float* rate_bias_;
  StateId state_;
  float* log_decay_;
  float* beta_;
};

}  // namespace

std::unique_ptr<Step> make_convolution_step(const StepMaker& maker, const Node& node,
                                            const op::CausalConvolution& op) {
  return std::make_unique<ConvolutionStep>(maker, node, op);
}

std::unique_ptr<Step> make_delta_net_step(const StepMaker& maker, const Node& node,
                                          const op::GatedDeltaNet& op) {
  return std::make_unique<DeltaNetStep>(maker, node, op);
}

}  // namespace hexlm
