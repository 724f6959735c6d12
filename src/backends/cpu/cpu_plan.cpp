#include "backends/cpu/cpu_plan.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <new>
#include <utility>
#include <variant>

namespace hexlm {

Result<std::unique_ptr<StateSet>> CpuPlan::create_state() const {
  HEXLM_ASSIGN(std::unique_ptr<CpuStateSet> state, CpuStateSet::create(layout_));
  return state;
}

Status CpuPlan::set_low_rank(std::vector<LowRankUpdate> updates) {
  std::vector<std::pair<size_t, LowRankUpdate*>> found;
  for (LowRankUpdate& update : updates) {
    size_t index = 0;
    while (index < graph_->nodes().size() && graph_->nodes()[index].name != update.node) ++index;
    const bool known =
        index < graph_->nodes().size() && std::holds_alternative<op::Linear>(graph_->nodes()[index].op);
    if (!known) return fail(ErrorCode::runtime, fmt::format("{} is no linear of this graph", update.node));
    const PreparedMatrix& matrix = weights_.matrix(graph_->nodes()[index].parameters[0]);
    if (matrix.rows != update.outputs || matrix.columns != update.inputs) {
      return fail(ErrorCode::runtime,
                  fmt::format("{} is [{}, {}], its update [{}, {}]", update.node, matrix.rows, matrix.columns,
                              update.outputs, update.inputs));
    }
    found.emplace_back(index, &update);
  }
  for (LowRankSlot& slot : low_rank_) slot.clear();
  for (const auto& [index, update] : found) {
    low_rank_[index].set(std::move(*update), std::max(options_.max_tokens, options_.max_rows),
                         pool_->threads());
  }
  return {};
}

Status CpuPlan::check_sizes(const RunArguments& arguments, const CpuStateSet& state) const {
  const SymbolValues& symbols = arguments.symbols;
  const int64_t least_tokens = has_tokens_ ? 1 : 0;
  const int64_t most_tokens = has_tokens_ ? options_.max_tokens : 0;
  if (symbols.tokens < least_tokens || symbols.tokens > most_tokens) {
    return fail(ErrorCode::usage, fmt::format("a step of {} tokens, the plan takes {} to {}", symbols.tokens,
                                              least_tokens, most_tokens));
  }
  const int64_t least_patches = has_tokens_ ? 0 : 1;
  if (symbols.patches < least_patches || symbols.patches > options_.max_patches) {
    return fail(ErrorCode::usage, fmt::format("a step of {} image cells, the plan takes {} to {}",
                                              symbols.patches, least_patches, options_.max_patches));
  }
  if (symbols.rows < 0 || symbols.rows > options_.max_rows) {
    return fail(ErrorCode::usage,
                fmt::format("a step of {} rows, the plan takes 0 to {}", symbols.rows, options_.max_rows));
  }
  if (symbols.tokens > state.capacity() - state.length()) {
    return fail(ErrorCode::limit,
                fmt::format("the context is full: {} tokens held, {} to add, room for {}", state.length(),
                            symbols.tokens, state.capacity()),
                "use a larger context or a shorter text");
  }
  return {};
}

Status CpuPlan::check_pointers(const RunArguments& arguments) const {
  if (arguments.inputs.size() != graph_->inputs().size() ||
      arguments.outputs.size() != graph_->outputs().size()) {
    return fail(ErrorCode::usage, fmt::format("a step with {} inputs and {} outputs, the graph has {} and {}",
                                              arguments.inputs.size(), arguments.outputs.size(),
                                              graph_->inputs().size(), graph_->outputs().size()));
  }
  const auto missing = [&](ValueId id, const void* pointer) {
    return pointer == nullptr && elements_[static_cast<size_t>(id.index)].at(arguments.symbols) > 0;
  };
  for (size_t i = 0; i < arguments.inputs.size(); ++i) {
    if (!missing(graph_->inputs()[i], arguments.inputs[i])) continue;
    return fail(ErrorCode::usage, fmt::format("input {} is null", graph_->value(graph_->inputs()[i]).name));
  }
  for (size_t i = 0; i < arguments.outputs.size(); ++i) {
    if (!missing(graph_->outputs()[i], arguments.outputs[i])) continue;
    return fail(ErrorCode::usage, fmt::format("output {} is null", graph_->value(graph_->outputs()[i]).name));
  }
  return {};
}

Status CpuPlan::check_indices(const RunArguments& arguments) const {
  for (const IndexCheck& check : index_checks_) {
    if (check.is_ranges) {
      HEXLM_TRY(check_ranges(check, arguments));
      continue;
    }
    const auto* indices = static_cast<const int32_t*>(arguments.inputs[check.input]);
    const int64_t count = check.count.at(arguments.symbols);
    const int64_t limit = check.limit.at(arguments.symbols);
    for (int64_t i = 0; i < count; ++i) {
      if (indices[i] >= check.least && indices[i] < limit) continue;
      return fail(
          check.is_table ? ErrorCode::bad_input : ErrorCode::usage,
          fmt::format("{}: element {} of {} is {}, expected {} to {}", check.node, i,
                      graph_->value(graph_->inputs()[check.input]).name, indices[i], check.least, limit - 1));
    }
  }
  return {};
}

Status CpuPlan::check_ranges(const IndexCheck& check, const RunArguments& arguments) const {
  const auto* begins = static_cast<const int32_t*>(arguments.inputs[check.input]);
  const int64_t rows = check.limit.at(arguments.symbols);
  const int32_t* ends = begins + rows;
  for (int64_t row = 0; row < rows; ++row) {
    if (begins[row] >= 0 && begins[row] <= row && ends[row] > row && ends[row] <= rows) continue;
    return fail(
        ErrorCode::usage,
        fmt::format("{}: row {} of {} is {} to {}, expected a range of 0 to {} that holds it", check.node,
                    row, graph_->value(graph_->inputs()[check.input]).name, begins[row], ends[row], rows));
  }
  return {};
}

/// Points the slots of graph inputs and outputs, and of values that share their memory, at the caller's.
void CpuPlan::bind(const RunArguments& arguments) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    const ValueStorage& value = storage_.values[i];
    if (value.kind == ValueStorage::Kind::input) {
      // Steps only read their inputs; one table of pointers serves both.
      slots_[i] = const_cast<void*>(arguments.inputs[value.index]);
    } else if (value.kind == ValueStorage::Kind::output) {
      slots_[i] = arguments.outputs[value.index];
    }
  }
}

void CpuPlan::copy_outputs(const RunArguments& arguments) const {
  for (const OutputCopy& copy : storage_.copies) {
    const auto value = static_cast<size_t>(copy.value.index);
    const auto bytes = static_cast<size_t>(elements_[value].at(arguments.symbols)) * sizeof(float);
    if (bytes > 0) std::memmove(arguments.outputs[copy.output], slots_[value], bytes);
  }
}

void CpuPlan::show(const PlannedStep& step, const RunArguments& arguments) const {
  const Node& node = graph_->nodes()[static_cast<size_t>(step.node)];
  const auto value = static_cast<size_t>(node.output.index);
  const auto count = static_cast<size_t>(elements_[value].at(arguments.symbols));
  const std::span<float> data(static_cast<float*>(slots_[value]), count);
  arguments.observer->after(node, graph_->value(node.output), data, arguments.symbols);
  arguments.observer->edit(node, graph_->value(node.output), data);
}

Status CpuPlan::run(const RunArguments& arguments, StateSet& state) {
  auto* mine = dynamic_cast<CpuStateSet*>(&state);
  if (mine == nullptr || &mine->layout() != layout_.get()) {
    return fail(ErrorCode::usage, "the state set was not created by this plan");
  }
  HEXLM_TRY(check_sizes(arguments, *mine));
  HEXLM_TRY(check_pointers(arguments));
  HEXLM_TRY(check_indices(arguments));
  bind(arguments);
  const RunContext context{*kernels_,      *pool_, arguments.symbols, *mine, scratch_.as<float>(),
                           scratch_stride_};
  for (const PlannedStep& step : steps_) {
    if (step.step != nullptr) step.step->run(context);
    if (arguments.observer != nullptr && step.node >= 0) show(step, arguments);
  }
  copy_outputs(arguments);
  mine->advance(arguments.symbols.tokens);
  return {};
}

}  // namespace hexlm
