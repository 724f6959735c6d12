#include <cmath>
#include <gmock/gmock.h>
#include <numeric>

#include "support.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

/// ids -> embedding [8, 4] -> linear with bias -> gather -> output [R, 3].
Result<Graph> small_graph(std::vector<int64_t> bias_shape = {3}) {
  GraphBuilder g;
  const ValueId ids = g.input("ids", DType::i32, {tokens_dim});
  const ValueId rows = g.input("rows", DType::i32, {rows_dim});
  const ValueId x =
      g.add("embed", op::Embedding{}, {ids}, {g.parameter("table", {8, 4}, ParameterRole::embedding)});
  const ValueId y = g.add("project", op::Linear{}, {x},
                          {g.parameter("project.weight", {3, 4}, ParameterRole::linear),
                           g.parameter("project.bias", std::move(bias_shape), ParameterRole::vector)});
  g.output(g.add("gather", op::GatherRows{}, {y, rows}));
  return std::move(g).build();
}

std::shared_ptr<TestWeights> small_weights() {
  auto weights = std::make_shared<TestWeights>();
  std::vector<float> table(32);
  std::iota(table.begin(), table.end(), 0.0F);
  weights->add("table", {8, 4}, table);
  weights->add("project.weight", {3, 4}, {1, 0, 0, 0, 0, 0, 0, 2, 1, 1, 1, 1});
  weights->add("project.bias", {3}, {0.5F, 0, -1});
  return weights;
}

class SmallPlan : public testing::Test {
 protected:
  SmallPlan() {
    auto graph = small_graph();
    EXPECT_TRUE(graph);
    graph_ = std::make_shared<const Graph>(std::move(*graph));
    options_.max_tokens = 4;
    options_.max_rows = 2;
    options_.context = 16;
  }
  Error compile_error() {
    const auto plan = (*make_backend("cpu"))->compile(graph_, weights_, options_);
    if (!plan) return plan.error();
    ADD_FAILURE() << "expected an error";
    return {};
  }
  /// Runs ids and rows; the output in `logits`.
  Status run(Plan& plan, StateSet& state, std::vector<int32_t> ids, std::vector<int32_t> rows) {
    logits_.assign(rows.size() * 3, 0);
    const std::vector<const void*> inputs = {ids.data(), rows.data()};
    const std::vector<float*> outputs = {logits_.data()};
    SymbolValues symbols;
    symbols.tokens = static_cast<int64_t>(ids.size());
    symbols.rows = static_cast<int64_t>(rows.size());
    return plan.run({symbols, inputs, outputs, nullptr}, state);
  }

  std::shared_ptr<const Graph> graph_;
  std::shared_ptr<TestWeights> weights_ = small_weights();
  PlanOptions options_;
  std::vector<float> logits_;
};

TEST_F(SmallPlan, ComputesByHand) {
  const auto plan = compile_or_fail(graph_, weights_, options_);
  const auto state = plan->create_state();
  ASSERT_TRUE(state);
  ASSERT_TRUE(run(*plan, **state, {2, 0, 7}, {2, 0}));
  EXPECT_EQ(logits_, (std::vector<float>{28.5F, 62, 117, 8.5F, 22, 37}));
  EXPECT_EQ((*state)->length(), 3);
  EXPECT_GT(plan->arena_bytes(), 0U);
  EXPECT_GE(plan->weight_bytes(), (32 + 12 + 3) * sizeof(float));
}

TEST_F(SmallPlan, NoRowsNoOutput) {
  const auto plan = compile_or_fail(graph_, weights_, options_);
  const auto state = plan->create_state();
  ASSERT_TRUE(run(*plan, **state, {2, 0, 7}, {}));
  EXPECT_EQ((*state)->length(), 3);
}

TEST_F(SmallPlan, RefusesStepsItWasNotMadeFor) {
  const auto plan = compile_or_fail(graph_, weights_, options_);
  const auto state = plan->create_state();
  const auto expect = [&](std::vector<int32_t> ids, std::vector<int32_t> rows, ErrorCode code,
                          const char* text) {
    const Status status = run(*plan, **state, std::move(ids), std::move(rows));
    ASSERT_FALSE(status) << text;
    EXPECT_EQ(status.error().code, code);
    EXPECT_THAT(status.error().message, HasSubstr(text));
    EXPECT_EQ((*state)->length(), 0);
  };
  expect({1, 1, 1, 1, 1}, {0}, ErrorCode::usage, "5 tokens, the plan takes 1 to 4");
  expect({}, {}, ErrorCode::usage, "0 tokens");
  expect({1}, {0, 0, 0}, ErrorCode::usage, "3 rows, the plan takes 0 to 2");
  expect({1, 8}, {0}, ErrorCode::bad_input, "embed: element 1 of ids is 8, expected 0 to 7");
  expect({-1}, {0}, ErrorCode::bad_input, "is -1");
  expect({1, 2}, {2}, ErrorCode::usage, "gather: element 0 of rows is 2, expected 0 to 1");
}

TEST_F(SmallPlan, RefusesMissingMemoryAndForeignStates) {
  const auto plan = compile_or_fail(graph_, weights_, options_);
  const auto other = compile_or_fail(graph_, weights_, options_);
  const auto state = plan->create_state();
  const auto foreign = other->create_state();
  EXPECT_EQ(run(*plan, **foreign, {1}, {0}).error().code, ErrorCode::usage);
  SymbolValues symbols;
  symbols.tokens = symbols.rows = 1;
  const int32_t zero = 0;
  const std::vector<const void*> inputs = {&zero, &zero};
  const std::vector<const void*> null_inputs = {&zero, nullptr};
  const std::vector<float*> null_outputs = {nullptr};
  std::vector<float> memory(3);
  const std::vector<float*> outputs = {memory.data()};
  EXPECT_THAT(plan->run({symbols, inputs, null_outputs, nullptr}, **state).error().message,
              HasSubstr("output gather is null"));
  EXPECT_THAT(plan->run({symbols, null_inputs, outputs, nullptr}, **state).error().message,
              HasSubstr("input rows is null"));
  EXPECT_THAT(plan->run({symbols, inputs, {}, nullptr}, **state).error().message,
              HasSubstr("2 inputs and 0 outputs, the graph has 2 and 1"));
  EXPECT_TRUE(plan->run({symbols, inputs, outputs, nullptr}, **state));
}

TEST_F(SmallPlan, ChecksItsOptions) {
  options_.threads = 0;
  EXPECT_THAT(compile_error().message, HasSubstr("threads is 0"));
  options_ = {};
  options_.max_tokens = 0;
  EXPECT_THAT(compile_error().message, HasSubstr("max_tokens is 0"));
  options_ = {};
  options_.context = 0;
  EXPECT_EQ(compile_error().code, ErrorCode::usage);
  options_ = {};
  const ScopedIsa scope("no_such_set");
  EXPECT_EQ(compile_error().code, ErrorCode::usage);
}

TEST_F(SmallPlan, ChecksEveryParameterAgainstTheGraph) {
  weights_->add("project.weight", {4, 3}, std::vector<float>(12));
  Error error = compile_error();
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_EQ(error.message, "test weights: project.weight has shape [4, 3], the model needs [3, 4]");
  weights_ = small_weights();
  weights_->views().erase("project.bias");
  EXPECT_EQ(compile_error().code, ErrorCode::bad_input);
  weights_ = small_weights();
  weights_->views().at("table").data.bytes = weights_->views().at("table").data.bytes.first(100);
  EXPECT_THAT(compile_error().message, HasSubstr("the elements of table as f32 take 128 bytes, found 100"));
  weights_ = small_weights();
  weights_->views().at("project.weight").scales.bytes = weights_->views().at("table").data.bytes;
  EXPECT_THAT(compile_error().message,
              HasSubstr("the scales of project.weight as f32 take 0 bytes, found 128"));
}

TEST_F(SmallPlan, VectorsMustBeFloat) {
  Codec codec;
  codec.kind = Codec::Kind::integer;
  codec.bits = 8;
  weights_->add("project.bias", {3}, std::vector<float>(3, 1.0F), codec);
  EXPECT_THAT(compile_error().message, HasSubstr("project.bias is stored as w8, expected f32, f16 or bf16"));
}

TEST_F(SmallPlan, SaysWhichNodeItCannotRun) {
  GraphBuilder g;
  const ValueId both = g.input("both", DType::f32, {tokens_dim, patches_dim, dim(4)});
  g.output(g.add("double", op::Add{}, {both, both}));
  auto graph = std::move(g).build();
  ASSERT_TRUE(graph);
  graph_ = std::make_shared<const Graph>(std::move(*graph));
  const Error error = compile_error();
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.message, HasSubstr("node double (add)"));
  EXPECT_THAT(error.message, HasSubstr("more than one size that changes"));
  EXPECT_FALSE((*make_backend("cpu"))->supports(*graph_, graph_->nodes()[0]).ok);
}

TEST_F(SmallPlan, RunsOutOfMemoryAsAnError) {
  // 2²⁰ tokens of a value 2²⁸ wide: a petabyte.
  GraphBuilder g;
  const ValueId ids = g.input("ids", DType::i32, {tokens_dim});
  const ValueId x =
      g.add("embed", op::Embedding{}, {ids}, {g.parameter("table", {8, 4}, ParameterRole::embedding)});
  const ValueId wide = g.input("wide", DType::f32, {tokens_dim, dim(int64_t{1} << 28)});
  const ValueId sum = g.add("sum", op::Add{}, {wide, wide});
  g.output(g.add("again", op::Add{}, {sum, wide}));
  g.output(x);
  auto graph = std::move(g).build();
  ASSERT_TRUE(graph);
  graph_ = std::make_shared<const Graph>(std::move(*graph));
  options_.max_tokens = 1 << 20;
  const Error error = compile_error();
  EXPECT_EQ(error.code, ErrorCode::limit);
}

/// Two outputs that are one value, and an output that is an input.
TEST(PlanOutputs, AreCopiedWhereTheyShareAValue) {
  GraphBuilder g;
  const ValueId x = g.input("x", DType::f32, {tokens_dim, dim(2)});
  const ValueId y = g.add("double", op::Add{}, {x, x});
  const ValueId flat = g.add("reshape", op::Reshape{{tokens_dim, dim(2), dim(1)}}, {y});
  g.output(y);
  g.output(flat);
  g.output(y);
  auto graph = std::move(g).build();
  ASSERT_TRUE(graph);
  const auto plan = compile_or_fail(std::make_shared<const Graph>(std::move(*graph)),
                                    std::make_shared<TestWeights>(), PlanOptions{});
  const auto state = plan->create_state();
  const std::vector<float> in = {1, 2, 3, 4};
  std::vector<std::vector<float>> out(3, std::vector<float>(4));
  const std::vector<const void*> inputs = {in.data()};
  const std::vector<float*> outputs = {out[0].data(), out[1].data(), out[2].data()};
  SymbolValues symbols;
  symbols.tokens = 2;
  ASSERT_TRUE(plan->run({symbols, inputs, outputs, nullptr}, **state));
  for (const std::vector<float>& values : out) EXPECT_EQ(values, (std::vector<float>{2, 4, 6, 8}));
}

/// Experts 1 and 2 tie: the lower one is taken, and the weights are those of the softmax.
TEST(Experts, TiesGoToTheLowestExpert) {
  for (const bool normalize : {false, true}) {
    GraphBuilder g;
    const ValueId x = g.input("x", DType::f32, {tokens_dim, dim(1)});
    const ValueId logits = g.input("logits", DType::f32, {tokens_dim, dim(4)});
    std::vector<ParameterId> matrices;
    auto weights = std::make_shared<TestWeights>();
    for (int e = 0; e < 4; ++e) {
      for (const char* part : {"gate", "up", "down"}) {
        const std::string name = std::to_string(e) + part;
        matrices.push_back(g.parameter(name, {1, 1}, ParameterRole::linear));
        // gate 100 makes silu the identity; down tells the experts apart.
        weights->add(name, {1, 1},
                     {part[0] == 'd'   ? static_cast<float>(1 << (4 * e))
                      : part[0] == 'g' ? 100.0F
                                       : 0.01F});
      }
    }
    g.output(g.add("experts", op::MixtureOfExperts{4, 2, 1, normalize}, {x, logits}, matrices));
    auto graph = std::move(g).build();
    ASSERT_TRUE(graph);
    const auto plan =
        compile_or_fail(std::make_shared<const Graph>(std::move(*graph)), weights, PlanOptions{});
    const auto state = plan->create_state();
    const std::vector<float> in = {1, 1};
    const std::vector<float> scores = {0, 1, 1, 1, 3, 0, 0, 0};
    std::vector<float> out(2);
    const std::vector<const void*> inputs = {in.data(), scores.data()};
    const std::vector<float*> outputs = {out.data()};
    SymbolValues symbols;
    symbols.tokens = 2;
    ASSERT_TRUE(plan->run({symbols, inputs, outputs, nullptr}, **state));
    const float e = std::exp(1.0F);
    const float one = normalize ? 0.5F : e / (1 + 3 * e);
    EXPECT_NEAR(out[0], one * (16 + 256), 1e-4F * out[0]);
    const float most = std::exp(3.0F);
    const float total = normalize ? most + 1 : most + 3;
    EXPECT_NEAR(out[1], (most * 1 + 16) / total, 1e-4F * out[1]);
  }
}

}  // namespace
}  // namespace hexlm
