#include <cstring>

#include "backends/cpu/steps.hpp"

namespace hexlm {
namespace {

/// Elements at a time: whole vectors of any width, so that where a loop is cut never changes a result.
constexpr int64_t element_multiple = 1024;
/// Cost of one element beside a multiply-add's: an exponential or a load and store of memory.
constexpr int64_t element_work = 4;

/// (a, b) -> y, element by element.
class PairStep final : public Step {
 public:
  using Kernel = void (*KernelSet::*)(const float*, const float*, float*, int64_t);
  PairStep(const StepMaker& maker, const Node& node, Kernel kernel)
      : a_(maker.bind(node.inputs[0])),
        b_(maker.bind(node.inputs[1])),
        y_(maker.bind(node.output)),
        count_(maker.elements(node.output)),
        kernel_(kernel) {}

  void run(const RunContext& context) override {
    const int64_t count = count_.at(context.symbols);
    const auto kernel = context.kernels.*kernel_;
    const float* a = a_.floats();
    const float* b = b_.floats();
    float* y = y_.floats();
    context.pool.run(
        count, grain_of(context.pool, count, element_work, element_multiple),
        [&](int64_t begin, int64_t end, int) { kernel(a + begin, b + begin, y + begin, end - begin); });
  }

 private:
  Binding a_;
  Binding b_;
  Binding y_;
  Extent count_;
  Kernel kernel_;
};

class NormStep final : public Step {
 public:
  NormStep(const StepMaker& maker, const Node& node, const op::RmsNorm& op)
      : x_(maker.bind(node.inputs[0])),
        y_(maker.bind(node.output)),
        rows_(maker.rows(node.output)),
        dim_(maker.columns(node.output)),
        weight_(maker.weights.vector(node.parameters[0])),
        op_(op) {}

  void run(const RunContext& context) override {
    const int64_t rows = rows_.at(context.symbols);
    context.pool.run(
        rows, grain_of(context.pool, rows, dim_ * element_work), [&](int64_t begin, int64_t end, int) {
          context.kernels.rms_norm(x_.floats() + begin * dim_, dim_, weight_, y_.floats() + begin * dim_,
                                   dim_, end - begin, dim_, op_.epsilon, op_.weight_offset);
        });
  }

 private:
  Binding x_;
  Binding y_;
  Extent rows_;
  int64_t dim_;
  const float* weight_;
  op::RmsNorm op_;
};

class GatedNormStep final : public Step {
 public:
  GatedNormStep(const StepMaker& maker, const Node& node, const op::GatedRmsNorm& op)
      : x_(maker.bind(node.inputs[0])),
        gate_(maker.bind(node.inputs[1])),
        y_(maker.bind(node.output)),
        rows_(maker.rows(node.output)),
        dim_(maker.columns(node.output)),
        weight_(maker.weights.vector(node.parameters[0])),
        epsilon_(op.epsilon) {}

  void run(const RunContext& context) override {
    const int64_t rows = rows_.at(context.symbols);
    context.pool.run(rows, grain_of(context.pool, rows, dim_ * element_work),
                     [&](int64_t begin, int64_t end, int) {
                       const int64_t first = begin * dim_;
                       context.kernels.gated_rms_norm(x_.floats() + first, gate_.floats() + first, weight_,
                                                      y_.floats() + first, end - begin, dim_, epsilon_);
                     });
  }

 private:
  Binding x_;
  Binding gate_;
  Binding y_;
  Extent rows_;
  int64_t dim_;
  const float* weight_;
  float epsilon_;
};

class LayerNormStep final : public Step {
 public:
  LayerNormStep(const StepMaker& maker, const Node& node, const op::LayerNorm& op)
      : x_(maker.bind(node.inputs[0])),
        y_(maker.bind(node.output)),
        rows_(maker.rows(node.output)),
        dim_(maker.columns(node.output)),
        weight_(maker.weights.vector(node.parameters[0])),
        bias_(maker.weights.vector(node.parameters[1])),
        epsilon_(op.epsilon) {}

  void run(const RunContext& context) override {
    const int64_t rows = rows_.at(context.symbols);
    context.pool.run(rows, grain_of(context.pool, rows, dim_ * element_work),
                     [&](int64_t begin, int64_t end, int) {
                       const int64_t first = begin * dim_;
                       context.kernels.layer_norm(x_.floats() + first, weight_, bias_, y_.floats() + first,
                                                  end - begin, dim_, epsilon_);
                     });
  }

 private:
  Binding x_;
  Binding y_;
  Extent rows_;
  int64_t dim_;
  const float* weight_;
  const float* bias_;
  float epsilon_;
};

class GeluStep final : public Step {
 public:
  GeluStep(const StepMaker& maker, const Node& node, const op::Gelu& op)
      : x_(maker.bind(node.inputs[0])),
        y_(maker.bind(node.output)),
        count_(maker.elements(node.output)),
        kind_(op.kind) {}

  void run(const RunContext& context) override {
    const int64_t count = count_.at(context.symbols);
    const auto kernel = kind_ == op::Gelu::Kind::tanh  ? context.kernels.gelu_tanh
                        : kind_ == op::Gelu::Kind::erf ? context.kernels.gelu_erf
                                                       : context.kernels.gelu_quick;
    const float* x = x_.floats();
    float* y = y_.floats();
    context.pool.run(count, grain_of(context.pool, count, element_work, element_multiple),
                     [&](int64_t begin, int64_t end, int) { kernel(x + begin, y + begin, end - begin); });
  }

 private:
  Binding x_;
  Binding y_;
  Extent count_;
  op::Gelu::Kind kind_;
};

class SliceStep final : public Step {
 public:
  SliceStep(const StepMaker& maker, const Node& node, const op::Slice& op)
      : x_(maker.bind(node.inputs[0])),
        y_(maker.bind(node.output)),
        rows_(maker.rows(node.output)),
        columns_(maker.columns(node.inputs[0])),
        op_(op) {}

  void run(const RunContext& context) override {
    const int64_t rows = rows_.at(context.symbols);
    const int64_t taken = op_.end - op_.begin;
    const float* x = x_.floats() + op_.begin;
    float* y = y_.floats();
    context.pool.run(rows, grain_of(context.pool, rows, taken), [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        std::memcpy(y + row * taken, x + row * columns_, static_cast<size_t>(taken) * sizeof(float));
      }
    });
  }

 private:
  Binding x_;
  Binding y_;
  Extent rows_;
  int64_t columns_;
  op::Slice op_;
};

}  // namespace

std::unique_ptr<Step> make_pair_step(const StepMaker& maker, const Node& node) {
  PairStep::Kernel kernel = &KernelSet::add;
  if (std::holds_alternative<op::SiluMultiply>(node.op)) kernel = &KernelSet::silu_multiply;
  if (std::holds_alternative<op::SigmoidMultiply>(node.op)) kernel = &KernelSet::sigmoid_multiply;
  return std::make_unique<PairStep>(maker, node, kernel);
}

std::unique_ptr<Step> make_norm_step(const StepMaker& maker, const Node& node, const op::RmsNorm& op) {
  return std::make_unique<NormStep>(maker, node, op);
}

std::unique_ptr<Step> make_gated_norm_step(const StepMaker& maker, const Node& node,
                                           const op::GatedRmsNorm& op) {
  return std::make_unique<GatedNormStep>(maker, node, op);
}

std::unique_ptr<Step> make_layer_norm_step(const StepMaker& maker, const Node& node,
                                           const op::LayerNorm& op) {
  return std::make_unique<LayerNormStep>(maker, node, op);
}

std::unique_ptr<Step> make_gelu_step(const StepMaker& maker, const Node& node, const op::Gelu& op) {
  return std::make_unique<GeluStep>(maker, node, op);
}

std::unique_ptr<Step> make_slice_step(const StepMaker& maker, const Node& node, const op::Slice& op) {
  return std::make_unique<SliceStep>(maker, node, op);
}

}  // namespace hexlm
