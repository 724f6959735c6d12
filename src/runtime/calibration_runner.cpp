#include "runtime/calibration_runner.hpp"

#include <algorithm>

#include "backends/backend.hpp"
#include "base/progress.hpp"

namespace hexlm {
namespace {

class BackendGraph : public PreparedGraph {
 public:
  static Result<std::unique_ptr<PreparedGraph>> create(std::shared_ptr<const Graph> graph,
                                                       std::shared_ptr<const WeightSource> weights,
                                                       const PlanOptions& options) {
    HEXLM_ASSIGN(const auto backend, make_backend("cpu"));
    const size_t inputs = graph->inputs().size();
    auto prepared = std::make_unique<BackendGraph>();
    prepared->inputs_ = inputs;
    HEXLM_ASSIGN(prepared->plan_, backend->compile(std::move(graph), std::move(weights), options));
    HEXLM_ASSIGN(prepared->state_, prepared->plan_->create_state());
    return prepared;
  }

  size_t input_count() const override { return inputs_; }

  Status run(const SymbolValues& symbols, std::span<const void* const> inputs,
             std::span<float* const> outputs) override {
    if (interrupted()) return fail(ErrorCode::interrupted, "interrupted");
    state_->reset();
    return plan_->run({symbols, inputs, outputs, nullptr}, *state_);
  }

 private:
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<StateSet> state_;
  size_t inputs_ = 0;
};

class BackendRunner : public GraphRunner {
 public:
  explicit BackendRunner(int threads) : threads_(threads) {}

  Result<std::unique_ptr<PreparedGraph>> prepare(std::shared_ptr<const Graph> graph,
                                                 std::shared_ptr<const WeightSource> weights,
                                                 const SymbolValues& most) const override {
    PlanOptions options;
    options.threads = threads_;
    options.precision = Precision::high;
    options.max_tokens = std::max<int64_t>(1, most.tokens);
    options.max_rows = std::max<int64_t>(1, most.rows);
    options.max_patches = most.patches;
    options.context = options.max_tokens;
    return BackendGraph::create(std::move(graph), std::move(weights), options);
  }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<GraphRunner> make_calibration_runner(int threads) {
  return std::make_unique<BackendRunner>(threads);
}

}  // namespace hexlm
