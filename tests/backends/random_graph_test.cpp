#include "random_graph.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "backends/cpu/storage.hpp"
#include "backends/exact/double_executor.hpp"

namespace hexlm {
namespace {

/// A step's inputs, and memory for its outputs of exactly the size they need.
struct StepData {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;
  std::vector<int32_t> rows;
  std::vector<std::vector<float>> outputs;
  std::vector<float*> output_pointers;
  SymbolValues symbols;

  StepData(const Graph& graph, int32_t tokens, uint32_t seed) {
    std::mt19937 engine(seed);
    for (int32_t i = 0; i < tokens; ++i)
      ids.push_back(static_cast<int32_t>(engine() % RandomGraph::vocabulary));
    for (int32_t i = 0; i < 3 * tokens; ++i) positions.push_back(static_cast<int32_t>(engine() % 50));
    for (int32_t i = 0; i < tokens; i += 2) rows.push_back(tokens - 1 - i);
    symbols.tokens = tokens;
    symbols.rows = static_cast<int64_t>(rows.size());
    for (const ValueId id : graph.outputs()) {
      outputs.emplace_back(static_cast<size_t>(elements(graph.value(id).shape, symbols)), -7.0F);
    }
    for (std::vector<float>& output : outputs) output_pointers.push_back(output.data());
  }

  static std::vector<double> doubles(const std::vector<int32_t>& values) {
    return {values.begin(), values.end()};
  }
};

/// Relative to the largest element; products of delta nets may underflow to nothing.
void expect_close(std::span<const float> got, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - expected[i]), 1e-4F * largest + 1e-9F) << what << " element " << i;
  }
}

/// Compares every value with the exact one as soon as it is made.
class Comparer : public Observer {
 public:
  explicit Comparer(const DoubleExecutor& exact) : exact_(exact) {}
  void after(const Node& node, const Value& value, std::span<const float> data,
             const SymbolValues&) override {
    expect_close(data, exact_.value(node.output), value.name);
    ++seen;
  }
  size_t seen = 0;

 private:
  const DoubleExecutor& exact_;
};

TEST(RandomGraphs, PlansComputeWhatTheGraphSays) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const RandomGraph random(seed);
    ASSERT_NE(random.graph(), nullptr);
    StepData data(*random.graph(), 9, seed);
    DoubleExecutor exact(*random.graph(), *random.weights());
    ASSERT_TRUE(exact.run(data.symbols, {StepData::doubles(data.ids), StepData::doubles(data.positions),
                                         StepData::doubles(data.rows)}));
    PlanOptions options;
    options.precision = Precision::high;
    options.threads = seed % 2 == 0 ? 1 : 2;
    options.max_tokens = 12;
    options.max_rows = 12;
    options.context = 32;
    const auto plan = compile_or_fail(random.graph(), random.weights(), options);
    EXPECT_EQ(plan->placement(), std::vector<std::string>(random.graph()->nodes().size(), "cpu"));
    const auto state = plan->create_state();
    ASSERT_TRUE(state);
    Comparer comparer(exact);
    const std::vector<const void*> inputs = {data.ids.data(), data.positions.data(), data.rows.data()};
    const Status status = plan->run({data.symbols, inputs, data.output_pointers, &comparer}, **state);
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(comparer.seen, random.graph()->nodes().size());
    for (size_t i = 0; i < data.outputs.size(); ++i) {
      expect_close(data.outputs[i], exact.value(random.graph()->outputs()[i]),
                   fmt::format("seed {} output {}", seed, i));
    }
  }
}

/// Last node that reads a value or one of its reshapes; the end of the run for outputs.
std::vector<int32_t> last_readers(const Graph& graph) {
  std::vector<int32_t> last(graph.values().size(), -1);
  const auto end = static_cast<int32_t>(graph.nodes().size());
  for (const ValueId id : graph.outputs()) last[static_cast<size_t>(id.index)] = end;
  for (int32_t i = end - 1; i >= 0; --i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    const bool is_reshape = std::holds_alternative<op::Reshape>(node.op);
    for (const ValueId input : node.inputs) {
      int32_t& reader = last[static_cast<size_t>(input.index)];
      reader = std::max({reader, i, is_reshape ? last[static_cast<size_t>(node.output.index)] : i});
    }
  }
  return last;
}

TEST(RandomGraphs, LiveValuesNeverShareMemory) {
  int64_t shared_memory = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const RandomGraph random(seed);
    const Graph& graph = *random.graph();
    PlanOptions options;
    options.max_tokens = 5;
    options.max_rows = 3;
    const auto storage = plan_storage(graph, options, {{1000, 2}, {640, -1}});
    ASSERT_TRUE(storage);
    const std::vector<int32_t> last = last_readers(graph);
    const SymbolValues most{5, 3, 0};
    for (size_t a = 0; a < graph.values().size(); ++a) {
      const ValueStorage& first = storage->values[a];
      if (first.kind != ValueStorage::Kind::arena) continue;
      const int64_t a_end = first.offset + 4 * elements(graph.values()[a].shape, most);
      EXPECT_LE(a_end, storage->arena_bytes);
      // The scratch memory of the whole run belongs to nobody else.
      EXPECT_TRUE(a_end <= storage->scratch[1] || first.offset >= storage->scratch[1] + 640);
      for (size_t b = 0; b < a; ++b) {
        const ValueStorage& second = storage->values[b];
        if (second.kind != ValueStorage::Kind::arena) continue;
        const int64_t b_end = second.offset + 4 * elements(graph.values()[b].shape, most);
        if (a_end <= second.offset || b_end <= first.offset) continue;
        ++shared_memory;
        // b was made first: it must be dead when a is made, or a is its reshape, or the rope that turns it.
        const int32_t made = graph.values()[a].producer.index;
        const Node& maker = graph.nodes()[static_cast<size_t>(made)];
        const bool same_elements = std::holds_alternative<op::Reshape>(maker.op) && first.root == second.root;
        const bool in_place = std::holds_alternative<op::Rope>(maker.op) && last[b] <= made;
        EXPECT_TRUE(last[b] < made || same_elements || in_place)
            << "seed " << seed << ": " << graph.values()[b].name << " and " << graph.values()[a].name;
      }
    }
  }
  EXPECT_GT(shared_memory, 0);
}

}  // namespace
}  // namespace hexlm
