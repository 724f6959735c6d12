#include <algorithm>
#include <cstring>

#include "backends/cpu/steps.hpp"

namespace hexlm {
namespace {

/// Query rows of one unit of work: the tile that kernels take at a time.
constexpr int64_t rows_per_unit = 48;

/// Rotated queries lie as [rows][heads][head_dim]; keys and values as [head][rows][head_dim], as the kernel
/// reads a cache. A query's result doesn't depend on which others are computed with it.
class PatchAttentionStep final : public Step {
 public:
  PatchAttentionStep(const StepMaker& maker, const Node& node, const op::PatchAttention& op)
      : qkv_(maker.bind(node.inputs[0])),
        cosine_(maker.bind(node.inputs[1])),
        sine_(maker.bind(node.inputs[2])),
        ranges_(maker.bind(node.inputs[3])),
        output_(maker.bind(node.output)),
        rows_(maker.rows(node.output)),
        op_(op),
        width_(op.heads * op.head_dim),
        queries_(reinterpret_cast<float*>(maker.scratch)) {}

  void run(const RunContext& context) override {
    const int64_t rows = rows_.at(context.symbols);
    context.pool.run(rows, grain_of(context.pool, rows, width_ * 8),
                     [&](int64_t begin, int64_t end, int worker) {
                       for (int64_t row = begin; row < end; ++row)
                         spread(context, row, rows, context.worker_scratch(worker));
                     });
    const int64_t blocks = (rows + rows_per_unit - 1) / rows_per_unit;
    context.pool.run(blocks * op_.heads, 1, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t first = unit % blocks * rows_per_unit;
        attend(context, unit / blocks, first, std::min(first + rows_per_unit, rows), rows,
               context.worker_scratch(worker));
      }
    });
  }

 private:
  float* keys(int64_t rows) const { return queries_ + rows * width_; }
  float* values(int64_t rows) const { return queries_ + 2 * rows * width_; }

  void spread(const RunContext& context, int64_t row, int64_t rows, float* key) const {
    const int64_t half = op_.head_dim / 2;
    const auto head_bytes = static_cast<size_t>(op_.head_dim) * sizeof(float);
    const float* from = qkv_.floats() + row * 3 * width_;
    const float* cosine = cosine_.floats() + row * half;
    const float* sine = sine_.floats() + row * half;
    float* query = queries_ + row * width_;
    std::memcpy(query, from, static_cast<size_t>(width_) * sizeof(float));
    std::memcpy(key, from + width_, static_cast<size_t>(width_) * sizeof(float));
    context.kernels.rope(query, op_.heads, op_.head_dim, op_.head_dim, cosine, sine);
    context.kernels.rope(key, op_.heads, op_.head_dim, op_.head_dim, cosine, sine);
    for (int64_t head = 0; head < op_.heads; ++head) {
      const int64_t to = (head * rows + row) * op_.head_dim;
      std::memcpy(keys(rows) + to, key + head * op_.head_dim, head_bytes);
      std::memcpy(values(rows) + to, from + 2 * width_ + head * op_.head_dim, head_bytes);
    }
  }

  /// Rows begin … end−1 of a head, those with one range together.
  void attend(const RunContext& context, int64_t head, int64_t begin, int64_t end, int64_t rows,
              float* scratch) const {
    const int32_t* starts = ranges_.integers();
    const int32_t* ends = starts + rows;
    AttentionArguments arguments;
    arguments.query_stride = width_;
    arguments.head_dim = op_.head_dim;
    arguments.scale = op_.scale;
    arguments.output_stride = width_;
    arguments.scratch = scratch;
    for (int64_t row = begin; row < end;) {
      int64_t next = row + 1;
      while (next < end && starts[next] == starts[row] && ends[next] == ends[row]) ++next;
      const int64_t first_key = (head * rows + starts[row]) * op_.head_dim;
      arguments.query = queries_ + row * width_ + head * op_.head_dim;
      arguments.keys = keys(rows) + first_key;
      arguments.values = values(rows) + first_key;
      arguments.entries = ends[row] - starts[row];
      arguments.token_end = next - row;
      arguments.output = output_.floats() + row * width_ + head * op_.head_dim;
      context.kernels.attention(arguments);
      row = next;
    }
  }

  Binding qkv_;
  Binding cosine_;
  Binding sine_;
  Binding ranges_;
  Binding output_;
  Extent rows_;
  op::PatchAttention op_;
  int64_t width_;
  float* queries_;
};

}  // namespace

int64_t patch_attention_scratch(const op::PatchAttention& op, const Extent& rows,
                                const PlanOptions& options) {
  const SymbolValues most{options.max_tokens, options.max_rows, options.max_patches};
  return 3 * rows.at(most) * op.heads * op.head_dim * int64_t{sizeof(float)};
}

std::unique_ptr<Step> make_patch_attention_step(const StepMaker& maker, const Node& node,
                                                const op::PatchAttention& op) {
  return std::make_unique<PatchAttentionStep>(maker, node, op);
}

}  // namespace hexlm
