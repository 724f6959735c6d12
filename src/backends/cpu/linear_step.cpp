#include "backends/cpu/steps.hpp"

namespace hexlm {
namespace {

class LinearStep final : public Step {
 public:
  LinearStep(const StepMaker& maker, const Node& node)
      : x_(maker.bind(node.inputs[0])),
        y_(maker.bind(node.output)),
        rows_(maker.rows(node.inputs[0])),
        matrix_(&maker.weights.matrix(node.parameters[0])),
        bias_(node.parameters.size() > 1 ? maker.weights.vector(node.parameters[1]) : nullptr),
        quantized_(matrix_->is_packed ? &maker.quantized.of(matrix_->packed.block) : nullptr),
        must_quantize_(!maker.input_is_quantized),
        low_rank_(&maker.low_rank[maker.node_index]) {}

  void run(const RunContext& context) override {
    const int64_t rows = rows_.at(context.symbols);
    if (rows == 0) return;
    const LinearInput input{x_.floats(), rows, quantized_, 0};
    if (quantized_ != nullptr && must_quantize_) quantize(context, input.x, rows, *matrix_, *quantized_);
    const int64_t work = rows * packed_tile_rows * matrix_->columns;
    context.pool.run(matrix_->tiles(), grain_of(context.pool, matrix_->tiles(), work, tile_multiple),
                     [&](int64_t begin, int64_t end, int worker) {
                       multiply(context.kernels, *matrix_, input, bias_, y_.floats(), matrix_->rows, begin,
                                end, context.worker_scratch(worker));
                     });
    if (low_rank_->is_set()) low_rank_->apply(context, input.x, bias_, y_.floats(), rows);
  }

 private:
  Binding x_;
  Binding y_;
  Extent rows_;
  const PreparedMatrix* matrix_;
  const float* bias_;
  QuantizedRows* quantized_;
  bool must_quantize_;
  LowRankSlot* low_rank_;
};

}  // namespace

std::unique_ptr<Step> make_linear_step(const StepMaker& maker, const Node& node) {
  return std::make_unique<LinearStep>(maker, node);
}

}  // namespace hexlm
