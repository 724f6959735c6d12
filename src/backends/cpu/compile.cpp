#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <utility>
#include <variant>

#include "backends/cpu/cpu_plan.hpp"
#include "backends/cpu/steps.hpp"

namespace hexlm {
namespace {

/// Longer steps than a million tokens are a mistake; the bound keeps products of sizes far from overflow.
constexpr int64_t most_step_tokens = 1 << 20;
constexpr int most_threads = 1024;

Status check_range(const char* what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return fail(ErrorCode::usage, fmt::format("{} is {}, expected {} to {}", what, value, least, most));
}

Status check_options(const PlanOptions& options) {
  HEXLM_TRY(check_range("threads", options.threads, 1, most_threads));
  HEXLM_TRY(check_range("max_tokens", options.max_tokens, 1, most_step_tokens));
  HEXLM_TRY(check_range("max_rows", options.max_rows, 0, most_step_tokens));
  HEXLM_TRY(check_range("max_patches", options.max_patches, 0, most_step_tokens));
  return check_range("context", options.context, 1, std::numeric_limits<int32_t>::max());
}

}  // namespace

class PlanCompiler {
 public:
  PlanCompiler(std::shared_ptr<const Graph> graph, const PlanOptions& options) : plan_(new CpuPlan) {
    plan_->graph_ = std::move(graph);
    plan_->options_ = options;
    if (options.max_patches == 0) plan_->options_.max_patches = options.max_tokens;
  }

  Result<std::unique_ptr<Plan>> compile(std::shared_ptr<const WeightSource> weights) {
    HEXLM_TRY(check_options(plan_->options_));
    HEXLM_ASSIGN(plan_->kernels_, select_kernels());
    plan_->pool_ = std::make_unique<ThreadPool>(plan_->options_.threads);
    HEXLM_ASSIGN(plan_->layout_, StateLayout::create(graph(), plan_->options_));
    HEXLM_ASSIGN(plan_->weights_,
                 PreparedWeights::prepare(graph(), std::move(weights), plan_->options_.precision,
                                          *plan_->kernels_, *plan_->pool_));
    find_rope_tables();
    HEXLM_TRY(plan_memory());
    bind_values();
    for (const Node& node : graph().nodes()) find_index_checks(node);
    find_symbols();
    make_steps();
    plan_->placement_.assign(graph().nodes().size(), "cpu");
    return std::unique_ptr<Plan>(std::move(plan_));
  }

 private:
  /// What a quantized buffer holds while the steps run: which value, seen as rows of how many columns.
  struct Held {
    int32_t value = -1;
    int64_t columns = 0;
    bool operator==(const Held&) const = default;
  };
  struct QuantizedSize {
    int64_t values = 0;
    int64_t blocks = 0;
  };

  const Graph& graph() const { return *plan_->graph_; }
  const Shape& shape(ValueId id) const { return graph().value(id).shape; }

  /// Ropes with equal settings and positions share a table; models have one or two.
  void find_rope_tables() {
    for (const Node& node : graph().nodes()) {
      const auto* op = std::get_if<op::Rope>(&node.op);
      if (op == nullptr) {
        table_of_.push_back(-1);
        continue;
      }
      const auto same = [&](const RopeTable& table) {
        return table.positions == node.inputs[1] && table.op.rotary_dim == op->rotary_dim &&
               table.op.inverse_frequencies == op->inverse_frequencies && table.op.stream == op->stream &&
               table.op.attention_factor == op->attention_factor;
      };
      const auto found = std::find_if(tables_.begin(), tables_.end(), same);
      table_of_.push_back(static_cast<int32_t>(found - tables_.begin()));
      if (found == tables_.end()) tables_.push_back({*op, node.inputs[1]});
    }
  }

  void find_symbols() {
    for (const Value& value : graph().values()) {
      for (const Dim& dim : value.shape) plan_->has_tokens_ |= dim.symbol == Symbol::tokens;
    }
  }

  void request(int64_t bytes, int32_t node) {
    if (bytes > 0) requests_.push_back({bytes, node});
  }

  /// Grows the sizes of the quantized buffers to what one product needs.
  void count_quantized(const PreparedMatrix& matrix, int64_t rows) {
    if (!matrix.is_packed) return;
    QuantizedSize& size = sizes_[matrix.packed.block == 32 ? 0 : 1];
    const int64_t values = rows * matrix.packed.padded_columns;
    size.values = std::max(size.values, values);
    size.blocks = std::max(size.blocks, values / matrix.packed.block);
  }

  void count_quantized() {
    const SymbolValues most{plan_->options_.max_tokens, plan_->options_.max_rows,
                            plan_->options_.max_patches};
    for (const Node& node : graph().nodes()) {
      if (std::holds_alternative<op::Linear>(node.op)) {
        const Shape& input = shape(node.inputs[0]);
        count_quantized(plan_->weights_.matrix(node.parameters[0]),
                        extent_of(input, 0, input.size() - 1)->at(most));
      } else if (const auto* experts = std::get_if<op::MixtureOfExperts>(&node.op)) {
        for (const ParameterId id : node.parameters) {
          count_quantized(plan_->weights_.matrix(id), most.tokens * experts->top_k);
        }
      }
    }
  }

  Status plan_memory() {
    count_quantized();
    for (const QuantizedSize& size : sizes_) {
      request(size.values, -1);
      request(size.blocks * int64_t{sizeof(float)}, -1);
      request(size.blocks * int64_t{sizeof(int32_t)}, -1);
    }
    for (const RopeTable& table : tables_) request(table.bytes(plan_->options_), -1);
    for (size_t i = 0; i < graph().nodes().size(); ++i) {
      request(scratch_bytes(graph(), graph().nodes()[i], plan_->options_), static_cast<int32_t>(i));
    }
    HEXLM_ASSIGN(plan_->storage_, plan_storage(graph(), plan_->options_, requests_));
    HEXLM_ASSIGN(plan_->arena_, AlignedBuffer::allocate(static_cast<size_t>(plan_->storage_.arena_bytes)));
    int64_t floats = 1;
    for (const Node& node : graph().nodes()) floats = std::max(floats, worker_scratch(graph(), node));
    // Whole pages apart: no line and no page is shared between workers.
    plan_->scratch_stride_ = (floats + 1023) / 1024 * 1024;
    const int64_t threads = plan_->pool_->threads();
    HEXLM_ASSIGN(plan_->scratch_, AlignedBuffer::allocate(
                                      static_cast<size_t>(plan_->scratch_stride_ * threads) * sizeof(float)));
    return {};
  }

  /// Memory of the next request, in the order of `plan_memory`.
  std::byte* next_request(int64_t bytes) {
    if (bytes <= 0) return nullptr;
    return plan_->arena_.data() + plan_->storage_.scratch[next_request_++];
  }

  void bind_quantized(const QuantizedSize& size, int64_t block, QuantizedRows& rows) {
    rows.block = block;
    rows.values = reinterpret_cast<int8_t*>(next_request(size.values));
    rows.scales = reinterpret_cast<float*>(next_request(size.blocks * int64_t{sizeof(float)}));
    rows.sums = reinterpret_cast<int32_t*>(next_request(size.blocks * int64_t{sizeof(int32_t)}));
  }

  void bind_values() {
    for (size_t i = 0; i < graph().values().size(); ++i) {
      const ValueStorage& value = plan_->storage_.values[i];
      const bool in_arena = value.kind == ValueStorage::Kind::arena && plan_->arena_.size() > 0;
      plan_->slots_.push_back(in_arena ? plan_->arena_.data() + value.offset : nullptr);
      plan_->elements_.push_back(*extent_of(graph().values()[i].shape));
    }
    bind_quantized(sizes_[0], 32, plan_->quantized_.of_32);
    bind_quantized(sizes_[1], 64, plan_->quantized_.of_64);
  }

  /// What of `node` indexes rows of what.
  void find_index_checks(const Node& node) {
    if (std::holds_alternative<op::Embedding>(node.op)) {
      add_table_check(node);
    } else if (std::holds_alternative<op::InterpolateRows>(node.op)) {
      add_table_check(node);
    } else if (std::holds_alternative<op::GatherRows>(node.op)) {
      add_check(node, 1, *extent_of(shape(node.inputs[0]), 0, 1));
    } else if (std::holds_alternative<op::ReplaceRows>(node.op) ||
               std::holds_alternative<op::AddRows>(node.op)) {
      add_check(node, 2, *extent_of(shape(node.inputs[1]), 0, 1)).least = -1;
    } else if (std::holds_alternative<op::PatchAttention>(node.op)) {
      add_check(node, 3, *extent_of(shape(node.inputs[0]), 0, 1)).is_ranges = true;
    }
  }

  IndexCheck& add_check(const Node& node, size_t input, Extent limit) {
    const ValueId indices = node.inputs[input];
    IndexCheck check;
    check.input = plan_->storage_.values[static_cast<size_t>(indices.index)].index;
    check.count = plan_->elements_[static_cast<size_t>(indices.index)];
    check.limit = limit;
    check.node = node.name;
    return plan_->index_checks_.emplace_back(std::move(check));
  }

  void add_table_check(const Node& node) {
    const int64_t rows = plan_->weights_.table(node.parameters[0]).rows;
    add_check(node, 0, {rows, Symbol::none}).is_table = true;
  }

  /// The value whose elements this one has: reshapes don't change what a quantized buffer holds.
  ValueId unshaped(ValueId id) const {
    while (graph().value(id).producer.index >= 0) {
      const Node& node = graph().nodes()[static_cast<size_t>(graph().value(id).producer.index)];
      if (!std::holds_alternative<op::Reshape>(node.op)) break;
      id = node.inputs[0];
    }
    return id;
  }

  /// Whether an earlier linear left this node's input in its quantized buffer; notes what the buffers hold
  /// after.
  bool input_is_quantized(const Node& node) {
    if (std::holds_alternative<op::MixtureOfExperts>(node.op)) held_ = {};
    if (!std::holds_alternative<op::Linear>(node.op)) return false;
    const PreparedMatrix& matrix = plan_->weights_.matrix(node.parameters[0]);
    if (!matrix.is_packed) return false;
    const Held wanted{unshaped(node.inputs[0]).index, matrix.columns};
    return std::exchange(held_[matrix.packed.block == 32 ? 0 : 1], wanted) == wanted;
  }

  void make_steps() {
    plan_->low_rank_.resize(graph().nodes().size());
    StepMaker maker{graph(),           plan_->options_, plan_->weights_,
                    plan_->quantized_, plan_->slots_,   plan_->low_rank_};
    std::vector<std::byte*> table_memory;
    for (const RopeTable& table : tables_) {
      table_memory.push_back(next_request(table.bytes(plan_->options_)));
      plan_->steps_.push_back({make_rope_table_step(maker, table, table_memory.back()), -1});
    }
    for (size_t i = 0; i < graph().nodes().size(); ++i) {
      const Node& node = graph().nodes()[i];
      maker.scratch = next_request(scratch_bytes(graph(), node, plan_->options_));
      maker.rope_table = table_of_[i] < 0 ? nullptr : table_memory[static_cast<size_t>(table_of_[i])];
      maker.node_index = i;
      maker.input_is_quantized = input_is_quantized(node);
      plan_->steps_.push_back({make_step(maker, node), static_cast<int32_t>(i)});
    }
  }

  std::unique_ptr<CpuPlan> plan_;
  std::vector<RopeTable> tables_;
  std::vector<int32_t> table_of_;  // by node; −1 without
  std::vector<ScratchRequest> requests_;
  std::array<QuantizedSize, 2> sizes_;  // blocks of 32, of 64
  std::array<Held, 2> held_;
  size_t next_request_ = 0;
};

Result<std::unique_ptr<Plan>> compile_cpu_plan(std::shared_ptr<const Graph> graph,
                                               std::shared_ptr<const WeightSource> weights,
                                               const PlanOptions& options) {
  return PlanCompiler(std::move(graph), options).compile(std::move(weights));
}

}  // namespace hexlm
