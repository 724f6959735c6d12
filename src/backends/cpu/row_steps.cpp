#include <cstring>

#include "backends/cpu/steps.hpp"

namespace hexlm {
namespace {

/// Reads rows of the stored table; ids were checked when the run began.
class EmbeddingStep final : public Step {
 public:
  EmbeddingStep(const StepMaker& maker, const Node& node)
      : ids_(maker.bind(node.inputs[0])),
        y_(maker.bind(node.output)),
        count_(maker.rows(node.output)),
        table_(maker.weights.table(node.parameters[0])) {}

  void run(const RunContext& context) override {
    const int64_t count = count_.at(context.symbols);
    const int32_t* ids = ids_.integers();
    float* y = y_.floats();
    context.pool.run(count, grain_of(context.pool, count, table_.columns * 4),
                     [&](int64_t begin, int64_t end, int) {
                       for (int64_t i = begin; i < end; ++i)
                         context.kernels.dequantize_row(table_, ids[i], y + i * table_.columns);
                     });
  }

 private:
  Binding ids_;
  Binding y_;
  Extent count_;
  MatrixView table_;
};

/// Copies rows of x; row numbers were checked when the run began.
class GatherStep final : public Step {
 public:
  GatherStep(const StepMaker& maker, const Node& node)
      : x_(maker.bind(node.inputs[0])),
        rows_(maker.bind(node.inputs[1])),
        y_(maker.bind(node.output)),
        count_(maker.rows(node.output)),
        columns_(maker.columns(node.output)) {}

  void run(const RunContext& context) override {
    const int64_t count = count_.at(context.symbols);
    const int32_t* rows = rows_.integers();
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(y_.floats() + i * columns_, x_.floats() + rows[i] * columns_,
                  static_cast<size_t>(columns_) * sizeof(float));
    }
  }

 private:
  Binding x_;
  Binding rows_;
  Binding y_;
  Extent count_;
  int64_t columns_;
};

}  // namespace

std::unique_ptr<Step> make_embedding_step(const StepMaker& maker, const Node& node) {
  return std::make_unique<EmbeddingStep>(maker, node);
}

std::unique_ptr<Step> make_gather_step(const StepMaker& maker, const Node& node) {
  return std::make_unique<GatherStep>(maker, node);
}

}  // namespace hexlm
