#include <cmath>
#include <cstring>

#include "backends/cpu/steps.hpp"

namespace hexlm {
namespace {

/// cos of all tokens [T, R/2], then sin [T, R/2] at the plan's largest T.
class RopeTableStep final : public Step {
 public:
  RopeTableStep(const StepMaker& maker, const RopeTable& table, std::byte* memory)
      : positions_(maker.bind(table.positions)), op_(table.op), most_tokens_(maker.options.max_tokens) {
    cosine_ = reinterpret_cast<float*>(memory);
  }

  void run(const RunContext& context) override {
    const int64_t tokens = context.symbols.tokens;
    const auto pairs = static_cast<int64_t>(op_.inverse_frequencies.size());
    // cosf and sinf cost some tens of multiply-adds.
    context.pool.run(tokens, grain_of(context.pool, tokens, pairs * 64),
                     [&](int64_t begin, int64_t end, int) { fill(begin, end, tokens, pairs); });
  }

 private:
  /// In the float arithmetic of transformers: float position times float frequency, then cos and sin, then
  /// the attention factor.
  void fill(int64_t begin, int64_t end, int64_t tokens, int64_t pairs) {
    const int32_t* positions = positions_.integers();
    float* sine = cosine_ + most_tokens_ * pairs;
    for (int64_t token = begin; token < end; ++token) {
      for (int64_t i = 0; i < pairs; ++i) {
        const auto at = static_cast<size_t>(i);
        const auto position = static_cast<float>(positions[op_.stream[at] * tokens + token]);
        const float angle = position * op_.inverse_frequencies[at];
        cosine_[token * pairs + i] = std::cos(angle) * op_.attention_factor;
        sine[token * pairs + i] = std::sin(angle) * op_.attention_factor;
      }
    }
  }

  Binding positions_;
  op::Rope op_;
  int64_t most_tokens_;
  float* cosine_;
};

class RopeStep final : public Step {
 public:
  RopeStep(const StepMaker& maker, const Node& node, const op::Rope& op)
      : x_(maker.bind(node.inputs[0])), y_(maker.bind(node.output)), rotary_dim_(op.rotary_dim) {
    const Shape& shape = maker.graph.value(node.output).shape;
    heads_ = shape[1].value;
    head_dim_ = shape[2].value;
    cosine_ = reinterpret_cast<const float*>(maker.rope_table);
    sine_ = cosine_ + maker.options.max_tokens * (rotary_dim_ / 2);
  }

  void run(const RunContext& context) override {
    const int64_t width = heads_ * head_dim_;
    const int64_t pairs = rotary_dim_ / 2;
    const float* x = x_.floats();
    float* y = y_.floats();
    const int64_t tokens = context.symbols.tokens;
    context.pool.run(tokens, grain_of(context.pool, tokens, width * 2), [&](int64_t begin, int64_t end, int) {
      for (int64_t token = begin; token < end; ++token) {
        if (x != y)
          std::memcpy(y + token * width, x + token * width, static_cast<size_t>(width) * sizeof(float));
        context.kernels.rope(y + token * width, heads_, head_dim_, rotary_dim_, cosine_ + token * pairs,
                             sine_ + token * pairs);
      }
    });
  }

 private:
  Binding x_;
  Binding y_;
  int64_t rotary_dim_;
  int64_t heads_ = 0;
  int64_t head_dim_ = 0;
  const float* cosine_;
  const float* sine_;
};

}  // namespace

std::unique_ptr<Step> make_rope_table_step(const StepMaker& maker, const RopeTable& table,
                                           std::byte* memory) {
  return std::make_unique<RopeTableStep>(maker, table, memory);
}

std::unique_ptr<Step> make_rope_step(const StepMaker& maker, const Node& node, const op::Rope& op) {
  return std::make_unique<RopeStep>(maker, node, op);
}

}  // namespace hexlm
