#include <cstring>
#include <variant>

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

/// Rows of a source among, or on top of, those of x; the index was checked when the run began. Usually in
/// place, and then free for tokens that show no image.
class IndexStep final : public Step {
 public:
  IndexStep(const StepMaker& maker, const Node& node)
      : x_(maker.bind(node.inputs[0])),
        source_(maker.bind(node.inputs[1])),
        index_(maker.bind(node.inputs[2])),
        y_(maker.bind(node.output)),
        count_(maker.rows(node.output)),
        columns_(maker.columns(node.output)),
        adds_(std::holds_alternative<op::AddRows>(node.op)) {}

  void run(const RunContext& context) override {
    const int64_t count = count_.at(context.symbols);
    const int32_t* index = index_.integers();
    const auto bytes = static_cast<size_t>(columns_) * sizeof(float);
    const float* x = x_.floats();
    float* y = y_.floats();
    for (int64_t i = 0; i < count; ++i) {
      const float* row = x + i * columns_;
      float* to = y + i * columns_;
      if (index[i] < 0) {
        if (to != row) std::memcpy(to, row, bytes);
        continue;
      }
      const float* from = source_.floats() + index[i] * columns_;
      if (adds_) {
        context.kernels.add(row, from, to, columns_);
      } else {
        std::memcpy(to, from, bytes);
      }
    }
  }

 private:
  Binding x_;
  Binding source_;
  Binding index_;
  Binding y_;
  Extent count_;
  int64_t columns_;
  bool adds_;
};

/// Weighted sums of stored rows; the index was checked when the run began.
class InterpolateStep final : public Step {
 public:
  InterpolateStep(const StepMaker& maker, const Node& node)
      : index_(maker.bind(node.inputs[0])),
        weight_(maker.bind(node.inputs[1])),
        y_(maker.bind(node.output)),
        count_(maker.rows(node.output)),
        taps_(maker.graph.value(node.inputs[0]).shape[0].value),
        table_(maker.weights.table(node.parameters[0])) {}

  void run(const RunContext& context) override {
    const int64_t count = count_.at(context.symbols);
    context.pool.run(count, grain_of(context.pool, count, taps_ * table_.columns * 4),
                     [&](int64_t begin, int64_t end, int worker) {
                       for (int64_t i = begin; i < end; ++i) {
                         interpolate(context, i, count, context.worker_scratch(worker));
                       }
                     });
  }

 private:
  void interpolate(const RunContext& context, int64_t i, int64_t count, float* row) const {
    float* y = y_.floats() + i * table_.columns;
    for (int64_t tap = 0; tap < taps_; ++tap) {
      context.kernels.dequantize_row(table_, index_.integers()[tap * count + i], row);
      const float weight = weight_.floats()[tap * count + i];
      for (int64_t c = 0; c < table_.columns; ++c) y[c] = (tap == 0 ? 0.0F : y[c]) + weight * row[c];
    }
  }

  Binding index_;
  Binding weight_;
  Binding y_;
  Extent count_;
  int64_t taps_;
  MatrixView table_;
};

}  // namespace

std::unique_ptr<Step> make_index_step(const StepMaker& maker, const Node& node) {
  return std::make_unique<IndexStep>(maker, node);
}

std::unique_ptr<Step> make_interpolate_step(const StepMaker& maker, const Node& node) {
  return std::make_unique<InterpolateStep>(maker, node);
}

std::unique_ptr<Step> make_embedding_step(const StepMaker& maker, const Node& node) {
  return std::make_unique<EmbeddingStep>(maker, node);
}

std::unique_ptr<Step> make_gather_step(const StepMaker& maker, const Node& node) {
  return std::make_unique<GatherStep>(maker, node);
}

}  // namespace hexlm
