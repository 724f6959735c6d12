#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "formats/codec.hpp"
#include "graph/graph.hpp"
#include "graph/low_rank.hpp"

namespace hexlm {

/// high: float activations, fp32 key/value cache. normal: integer weights are multiplied with activations
/// quantized to int8 per block, fp16 cache. low: as normal, and backends may use fp16 arithmetic.
/// docs/architecture.md lists the tolerance of each.
enum class Precision : uint8_t { low, normal, high };
std::string_view to_string(Precision precision);

struct PlanOptions {
  int threads = 1;
  Precision precision = Precision::normal;
  int64_t max_tokens = 512;  ///< largest T of one run
  int64_t max_rows = 512;    ///< largest R of one run
  int64_t max_patches = 0;   ///< largest V of one run; 0: max_tokens, what a text graph can show
  int64_t context = 4096;    ///< tokens the state can hold
};

/// Yes, or the reason why not (shown by `check` and in placement errors).
struct Support {
  bool ok = true;
  std::string reason;
};

/// What a run shows to an observer: the value a node has just produced. `data` is valid during the call only.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void after(const Node& node, const Value& value, std::span<const float> data,
                     const SymbolValues& symbols) = 0;
  /// Comes after `after` and may change the value, which later nodes then read: so that a comparison can feed
  /// them another model's values.
  virtual void edit(const Node& /*node*/, const Value& /*value*/, std::span<float> /*data*/) {}
};

/// A copy of what cannot be recomputed from the cache: recurrent states and the length. Restorable to the
/// state set that made it, for as long as the first `length` cache entries have not been overwritten;
/// `restore` checks and refuses otherwise.
class StateSnapshot {
 public:
  virtual ~StateSnapshot() = default;
  virtual int64_t length() const = 0;
};

/// Caches and recurrent states of one sequence.
class StateSet {
 public:
  virtual ~StateSet() = default;
  /// Tokens seen.
  virtual int64_t length() const = 0;
  virtual int64_t capacity() const = 0;
  virtual void reset() = 0;
  virtual Result<std::unique_ptr<StateSnapshot>> snapshot() const = 0;
  /// Errors: runtime when the snapshot is of another state set or its cache prefix was overwritten.
  virtual Status restore(const StateSnapshot& snapshot) = 0;
  /// False when a recurrent state exists: those can be restored, never truncated.
  virtual bool can_truncate() const = 0;
  /// Drops all but the first `length` tokens. Errors: unsupported when !can_truncate().
  virtual Status truncate(int64_t length) = 0;
  virtual uint64_t resident_bytes() const = 0;
};

/// One step's data, in the order of the graph's inputs and outputs. Sizes follow from the symbols.
struct RunArguments {
  SymbolValues symbols;
  std::span<const void* const> inputs;
  std::span<float* const> outputs;
  Observer* observer = nullptr;
};

/// A graph prepared for one backend: prepared weights, flat list of steps, one arena.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual Result<std::unique_ptr<StateSet>> create_state() const = 0;
  /// Runs one step and appends its tokens to `state`. No allocation. Errors: limit when the context is full
  /// (names tokens held, added and capacity); usage for sizes above the plan's maxima.
  virtual Status run(const RunArguments& arguments, StateSet& state) = 0;
  /// Replaces the low-rank updates that later runs add to linear nodes; empty removes them. Not while a run
  /// is in progress. Errors: unsupported on backends without them; runtime for a node that is no linear of
  /// those sizes.
  virtual Status set_low_rank(std::vector<LowRankUpdate> updates) = 0;
  /// Which backend each node of the graph runs on, by node index.
  virtual const std::vector<std::string>& placement() const = 0;
  /// Bytes of prepared weights and of the arena, for forecasts and reports.
  virtual uint64_t weight_bytes() const = 0;
  virtual uint64_t arena_bytes() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual Support supports(const Graph& graph, const Node& node) const = 0;
  /// Prepares every node. Errors: unsupported naming the first node it can't run and why; bad_input from the
  /// weights; limit when memory runs out. `weights` is kept alive by the plan.
  virtual Result<std::unique_ptr<Plan>> compile(std::shared_ptr<const Graph> graph,
                                                std::shared_ptr<const WeightSource> weights,
                                                const PlanOptions& options) const = 0;
};

/// "cpu" now; opencl, hexagon, qnn and onnxruntime answer with their null twin (device error that says how to
/// build them). Errors: usage for an unknown name, with the nearest.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name);

}  // namespace hexlm
