#include "backends/cpu/storage.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <variant>

#include "backends/cpu/extent.hpp"

namespace hexlm {
namespace {

/// Graph inputs come before every node, and outputs are read after the last.
constexpr int32_t before_all = -1;

bool works_in_place(const Op& op) {
  return std::holds_alternative<op::Rope>(op) || std::holds_alternative<op::ReplaceRows>(op) ||
         std::holds_alternative<op::AddRows>(op) || std::holds_alternative<op::Gelu>(op);
}

class StoragePlanner {
 public:
  StoragePlanner(const Graph& graph, const PlanOptions& options) : graph_(graph), options_(options) {
    const size_t count = graph.values().size();
    plan_.values.resize(count);
    last_use_.assign(count, before_all);
    lives_to_.assign(count, before_all);
    for (size_t i = 0; i < count; ++i) plan_.values[i].root = static_cast<int32_t>(i);
  }

  Result<StoragePlan> plan(const std::vector<ScratchRequest>& scratch) {
    find_last_uses();
    bind_inputs();
    share_memory();
    bind_outputs();
    HEXLM_TRY(place(scratch));
    return std::move(plan_);
  }

 private:
  ValueStorage& storage(ValueId id) { return plan_.values[static_cast<size_t>(id.index)]; }
  ValueStorage& root(ValueId id) { return plan_.values[static_cast<size_t>(storage(id).root)]; }

  void find_last_uses() {
    const auto end = static_cast<int32_t>(graph_.nodes().size());
    for (int32_t node = 0; node < end; ++node) {
      for (const ValueId input : graph_.nodes()[static_cast<size_t>(node)].inputs) {
        last_use_[static_cast<size_t>(input.index)] = node;
      }
    }
    for (const ValueId output : graph_.outputs()) last_use_[static_cast<size_t>(output.index)] = end;
  }

  void bind_inputs() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      storage(graph_.inputs()[i]).kind = ValueStorage::Kind::input;
      storage(graph_.inputs()[i]).index = i;
    }
  }

  /// Walks the nodes in order: by the time a node is met, all values that share its input's memory so far are
  /// known, and with them whether that memory is free after it (`lives_to_` of the root).
  void share_memory() {
    const auto end = static_cast<int32_t>(graph_.nodes().size());
    for (const ValueId input : graph_.inputs()) extend(input);
    for (int32_t index = 0; index < end; ++index) {
      const Node& node = graph_.nodes()[static_cast<size_t>(index)];
      if (!node.inputs.empty()) {
        const ValueStorage& source = root(node.inputs[0]);
        const bool dies = lives_to_[static_cast<size_t>(source.root)] <= index;
        const bool in_place = works_in_place(node.op) && dies && source.kind == ValueStorage::Kind::arena;
        if (in_place || std::holds_alternative<op::Reshape>(node.op)) storage(node.output).root = source.root;
      }
      extend(node.output);
    }
  }

  void extend(ValueId id) {
    int32_t& lives_to = lives_to_[static_cast<size_t>(storage(id).root)];
    lives_to = std::max(lives_to, last_use_[static_cast<size_t>(id.index)]);
  }

  void bind_outputs() {
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      ValueStorage& home = root(graph_.outputs()[i]);
      if (home.kind != ValueStorage::Kind::arena) {
        plan_.copies.push_back({graph_.outputs()[i], i});
        continue;
      }
      home.kind = ValueStorage::Kind::output;
      home.index = i;
    }
    for (ValueStorage& value : plan_.values) {
      const ValueStorage& home = plan_.values[static_cast<size_t>(value.root)];
      value.kind = home.kind;
      value.index = home.index;
    }
  }

  /// Bytes of a value at the largest step; all elements are four bytes wide.
  Result<int64_t> largest_bytes(const Value& value) const {
    const SymbolValues most{options_.max_tokens, options_.max_rows, options_.max_patches};
    const std::optional<Extent> extent = extent_of(value.shape);
    int64_t bytes = 0;
    if (extent) {
      const int64_t times = Extent{1, extent->symbol}.at(most);
      const bool overflow = __builtin_mul_overflow(extent->factor, times, &bytes) ||
                            __builtin_mul_overflow(bytes, int64_t{sizeof(float)}, &bytes);
      if (!overflow) return bytes;
    }
    return fail(ErrorCode::limit,
                fmt::format("value {} {} is too large for steps of {} tokens and {} image cells", value.name,
                            to_string(value.shape), options_.max_tokens, options_.max_patches));
  }

  Status place(const std::vector<ScratchRequest>& scratch) {
    const size_t count = graph_.values().size();
    plan_.intervals.assign(count, Interval{});
    for (size_t i = 0; i < count; ++i) {
      const ValueStorage& value = plan_.values[i];
      if (value.kind != ValueStorage::Kind::arena || value.root != static_cast<int32_t>(i)) continue;
      HEXLM_ASSIGN(const int64_t bytes, largest_bytes(graph_.values()[i]));
      const int32_t producer = graph_.values()[i].producer.index;
      // A value that nobody reads is still written.
      plan_.intervals[i] = {bytes, producer, std::max(producer, lives_to_[i])};
    }
    std::vector<Interval> all = plan_.intervals;
    const auto end = static_cast<int32_t>(graph_.nodes().size());
    for (const ScratchRequest& request : scratch) {
      all.push_back(request.node < 0 ? Interval{request.bytes, before_all, end}
                                     : Interval{request.bytes, request.node, request.node});
    }
    HEXLM_ASSIGN(const MemoryPlan memory, plan_memory(all));
    for (size_t i = 0; i < count; ++i) {
      plan_.values[i].offset = memory.offsets[static_cast<size_t>(plan_.values[i].root)];
    }
    plan_.scratch.assign(memory.offsets.begin() + static_cast<std::ptrdiff_t>(count), memory.offsets.end());
    plan_.arena_bytes = memory.bytes;
    return {};
  }

  const Graph& graph_;
  const PlanOptions& options_;
  StoragePlan plan_;
  std::vector<int32_t> last_use_;
  std::vector<int32_t> lives_to_;  // of each root: the last use of all values that share it
};

}  // namespace

Result<StoragePlan> plan_storage(const Graph& graph, const PlanOptions& options,
                                 const std::vector<ScratchRequest>& scratch) {
  return StoragePlanner(graph, options).plan(scratch);
}

}  // namespace hexlm
