#include <fmt/format.h>
#include <random>

#include "support.hpp"

namespace hexlm {
namespace {

PlanOptions options(Precision precision, int threads = 1) {
  PlanOptions plan;
  plan.threads = threads;
  plan.precision = precision;
  plan.max_tokens = 64;
  plan.max_rows = 64;
  plan.context = 256;
  return plan;
}

Codec codec(const std::string& text) {
  auto parsed = parse_codec(text);
  EXPECT_TRUE(parsed) << text;
  return *parsed;
}

std::vector<float> random_values(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

class Normal : public testing::TestWithParam<std::string> {
 protected:
  Normal() : reference_(load_case(GetParam())), tokens_(reference_.tokens("short")) {}
  std::vector<float> logits(const std::shared_ptr<const WeightSource>& weights, const PlanOptions& plan,
                            int64_t chunk = 64) {
    Runner runner(reference_.graph, weights, plan);
    return runner.logits(tokens_, chunk);
  }
  /// What the first layer hands on.
  std::vector<float> first_layer(const std::shared_ptr<const WeightSource>& weights,
                                 const PlanOptions& plan) {
    Runner runner(reference_.graph, weights, plan);
    HiddenRecorder recorder(*reference_.graph);
    runner.logits(tokens_, 64, &recorder);
    return recorder.hidden()[1];
  }
  ReferenceCase reference_;
  std::vector<int32_t> tokens_;
};

/// int8 activations cost about 0.5 % a product. The random qwen3_5 checkpoint magnifies every rounding about
/// as much here as it does float32's (golden_test.cpp), so that only its first layer says much.
double logits_distance(const std::string& name) { return name == "qwen3_5_text" ? 0.4 : 0.05; }
constexpr double first_layer_distance = 0.05;

/// The int8 path multiplies the same weights as the float path: what differs is the activations' rounding.
TEST_P(Normal, StaysCloseToHighOnTheSameIntegerWeights) {
  for (const char* text : {"w8", "w8g32", "w4g64", "w4g64a", "w6g32", "w3g64a"}) {
    const auto weights = encode_case(reference_, codec(text), false);
    const std::vector<float> high = logits(weights, options(Precision::high));
    const std::vector<float> high_layer = first_layer(weights, options(Precision::high));
    // The float path reads the codes; decoding them beforehand gives the same numbers.
    EXPECT_LE(
        relative_error(high, logits(encode_case(reference_, codec(text), true), options(Precision::high))),
        1e-4)
        << text;
    for (const std::string& isa : available_isas()) {
      const ScopedIsa scope(isa);
      const std::vector<float> normal = logits(weights, options(Precision::normal));
      const double distance = relative_distance(normal, high);
      EXPECT_LE(distance, logits_distance(GetParam())) << text << " " << isa;
      EXPECT_LE(relative_distance(first_layer(weights, options(Precision::normal)), high_layer),
                first_layer_distance)
          << text << " " << isa;
      EXPECT_GT(distance, 1e-5) << text << " " << isa << ": the int8 path was not taken";
      EXPECT_EQ(normal, logits(weights, options(Precision::low))) << text << " " << isa;
    }
  }
}

TEST_P(Normal, ThreadsDoNotChangeABit) {
  const auto weights = encode_case(reference_, codec("w4g32"), false);
  for (const std::string& isa : available_isas()) {
    const ScopedIsa scope(isa);
    const std::vector<float> one = logits(weights, options(Precision::normal, 1));
    EXPECT_EQ(one, logits(weights, options(Precision::normal, 2))) << isa;
    EXPECT_EQ(one, logits(weights, options(Precision::normal, 3))) << isa;
  }
}

/// A prompt in pieces sees the same quantized activations; only sums may be ordered differently, and where
/// two int8 roundings lie on the edge they may fall apart.
TEST_P(Normal, ChunksAgree) {
  const auto weights = encode_case(reference_, codec("w4g64"), false);
  for (const std::string& isa : available_isas()) {
    const ScopedIsa scope(isa);
    const std::vector<float> whole = logits(weights, options(Precision::normal));
    EXPECT_LE(relative_distance(logits(weights, options(Precision::normal), 1), whole),
              logits_distance(GetParam()))
        << isa;
    EXPECT_LE(relative_distance(logits(weights, options(Precision::normal), 7), whole),
              logits_distance(GetParam()))
        << isa;
  }
}

/// Float weights stay on the float path; the cache is fp16.
TEST_P(Normal, FloatWeightsDifferOnlyByTheHalfCache) {
  const std::vector<float> high = logits(reference_.weights, options(Precision::high));
  const std::vector<float> normal = logits(reference_.weights, options(Precision::normal));
  EXPECT_LE(relative_distance(normal, high), 5e-3);
  EXPECT_NE(normal, high);
}

INSTANTIATE_TEST_SUITE_P(Models, Normal, testing::Values("qwen2_tied", "qwen3_moe", "qwen3_5_text"),
                         [](const auto& info) { return info.param; });

TEST(PackedWeights, AreReleasedUnlessTheyAreTheTableToo) {
  const ReferenceCase reference = load_case("qwen2_tied");
  const auto weights = encode_case(reference, codec("w4g64"), false);
  compile_or_fail(reference.graph, weights, options(Precision::normal));
  EXPECT_EQ(weights->released().count("embed_tokens.weight"), 0U);
  EXPECT_EQ(weights->released().count("layers.0.input_layernorm.weight"), 0U);
  for (const char* name : {"layers.0.mlp.down_proj.weight", "layers.1.self_attn.q_proj.weight"}) {
    EXPECT_EQ(weights->released().count(name), 1U) << name;
  }
  const auto high = encode_case(reference, codec("w4g64"), false);
  compile_or_fail(reference.graph, high, options(Precision::high));
  EXPECT_TRUE(high->released().empty());
}

TEST(PackedWeights, SensitiveMatricesStayExact) {
  // One matrix, its input a graph input: a sensitive one is multiplied in float although its codec has an
  // int8 form.
  for (const ParameterRole role : {ParameterRole::linear, ParameterRole::sensitive}) {
    GraphBuilder g;
    const ValueId x = g.input("x", DType::f32, {tokens_dim, dim(64)});
    g.output(g.add("y", op::Linear{}, {x}, {g.parameter("w", {16, 64}, role)}));
    auto graph = std::move(g).build();
    ASSERT_TRUE(graph);
    auto weights = std::make_shared<TestWeights>();
    weights->add("w", {16, 64}, random_values(16 * 64, 1), codec("w8g64"));
    const std::vector<float> in = random_values(64, 2);
    const auto shared = std::make_shared<const Graph>(std::move(*graph));
    std::vector<std::vector<float>> out;
    for (const Precision precision : {Precision::high, Precision::normal}) {
      const auto plan = compile_or_fail(shared, weights, options(precision));
      const auto state = plan->create_state();
      out.emplace_back(16);
      const std::vector<const void*> inputs = {in.data()};
      const std::vector<float*> outputs = {out.back().data()};
      SymbolValues symbols;
      symbols.tokens = 1;
      ASSERT_TRUE(plan->run({symbols, inputs, outputs, nullptr}, **state));
    }
    EXPECT_EQ(out[0] == out[1], role == ParameterRole::sensitive);
    EXPECT_LE(relative_error(out[1], out[0]), 0.02);
  }
}

/// Linears of the same input share its quantized form, also across a reshape and another codec's block size;
/// a linear of another input in between must not leave its own behind.
TEST(PackedWeights, SharedInputsAreQuantizedForEachOfTheirReaders) {
  GraphBuilder g;
  const ValueId x = g.input("x", DType::f32, {tokens_dim, dim(128)});
  const auto linear = [&](const std::string& name, ValueId from, int64_t columns) {
    return g.add(name, op::Linear{}, {from},
                 {g.parameter(name + ".w", {128, columns}, ParameterRole::linear)});
  };
  const ValueId folded = g.add("fold", op::Reshape{{tokens_dim, dim(2), dim(64)}}, {x});
  const ValueId a = linear("a", x, 128);
  const ValueId b = linear("b", x, 128);
  const ValueId c = linear("c", a, 128);
  const ValueId d = linear("d", x, 128);
  const ValueId e = linear("e", folded, 64);
  const ValueId f = linear("f", x, 128);
  for (const ValueId id : {a, b, c, d, e, f}) g.output(id);
  auto built = std::move(g).build();
  ASSERT_TRUE(built);
  const auto graph = std::make_shared<const Graph>(std::move(*built));
  auto weights = std::make_shared<TestWeights>();
  const std::vector<float> values = random_values(128 * 128, 3);
  for (const char* name : {"a", "c", "d", "f"})
    weights->add(fmt::format("{}.w", name), {128, 128}, values, codec("w8g64"));
  weights->add("b.w", {128, 128}, values, codec("w8g32"));
  weights->add("e.w", {128, 64}, {values.begin(), values.begin() + 128 * 64}, codec("w8g64"));
  const std::vector<float> in = random_values(3 * 128, 4);
  std::vector<std::vector<std::vector<float>>> results;
  for (const Precision precision : {Precision::high, Precision::normal}) {
    const auto plan = compile_or_fail(graph, weights, options(precision));
    const auto state = plan->create_state();
    std::vector<std::vector<float>> out(6, std::vector<float>(size_t{3} * 128));
    out[4].resize(size_t{6} * 128);
    std::vector<float*> outputs;
    outputs.reserve(out.size());
    for (std::vector<float>& values_out : out) outputs.push_back(values_out.data());
    const std::vector<const void*> inputs = {in.data()};
    SymbolValues symbols;
    symbols.tokens = 3;
    ASSERT_TRUE(plan->run({symbols, inputs, outputs, nullptr}, **state));
    results.push_back(std::move(out));
  }
  for (size_t i = 0; i < 6; ++i) EXPECT_LE(relative_distance(results[1][i], results[0][i]), 0.02) << i;
  EXPECT_EQ(results[1][0], results[1][3]);
  EXPECT_EQ(results[1][0], results[1][5]);
}

}  // namespace
}  // namespace hexlm
