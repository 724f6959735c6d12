#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

#include "backends/exact/double_executor.hpp"
#include "support.hpp"

namespace hexlm {
namespace {

/// docs/architecture.md, "Numbers": precision high against transformers in float32. Relative, in the
/// Frobenius norm; `peak` is the largest error of an element over the largest element.
struct Limit {
  double distance = 1e-5;
  double peak = 1e-5;
};

/// The random qwen3_5 checkpoint is ill-conditioned: a few of its tokens have delta-net outputs that almost
/// cancel, and the gated norm blows their rounding up. On its short prompt transformers in float32
/// lies 1.6e-5 from the exact result, 1.1e-5 to 2.5e-5 from itself under another instruction set of its BLAS,
/// and 3.0e-5 from itself when it takes the prompt token by token. The vector kernels add along the columns
/// in the order its BLAS does and come within 1e-5 of it; the scalar set adds in double and can't. Against
/// the exact result the limit is transformers' own distance, rounded up. On the long text only single
/// elements stand out.
bool ill_conditioned(const std::string& name) { return name == "qwen3_5_text"; }
Limit limit_of(const std::string& name) { return ill_conditioned(name) ? Limit{3e-5, 1.5e-4} : Limit{}; }
Limit exact_limit_of(const std::string& name) { return ill_conditioned(name) ? Limit{2e-5, 1e-4} : Limit{}; }

Limit long_limit_of(const std::string& name) { return ill_conditioned(name) ? Limit{1e-5, 5e-5} : Limit{}; }

PlanOptions options(int threads, int64_t chunk) {
  PlanOptions plan;
  plan.threads = threads;
  plan.precision = Precision::high;
  plan.max_tokens = chunk;
  plan.max_rows = chunk;
  plan.context = 512;
  return plan;
}

/// One reference case on one kernel set.
class Golden : public testing::TestWithParam<std::string> {
 protected:
  Golden() : reference_(load_case(GetParam())) {}
  ReferenceCase reference_;
};

void expect_close(const std::vector<float>& got, const std::vector<float>& expected, const std::string& what,
                  Limit limit = {}) {
  EXPECT_LE(relative_distance(got, expected), limit.distance) << what;
  EXPECT_LE(relative_error(got, expected), limit.peak) << what;
}

/// The exact result: the whole graph in double precision.
DoubleExecutor run_exactly(const ReferenceCase& reference, const std::vector<int32_t>& tokens) {
  std::vector<double> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0.0);
  std::vector<double> positions;
  for (int stream = 0; stream < 3; ++stream) positions.insert(positions.end(), rows.begin(), rows.end());
  SymbolValues symbols;
  symbols.tokens = symbols.rows = static_cast<int64_t>(tokens.size());
  DoubleExecutor exact(*reference.graph, *reference.weights);
  const Status status = exact.run(symbols, {{tokens.begin(), tokens.end()}, positions, rows});
  EXPECT_TRUE(status) << status.error().message;
  return exact;
}

/// That the model definitions are right is shown without any kernel: the graphs in double precision.
TEST_P(Golden, TheGraphInDoublePrecision) {
  const DoubleExecutor exact = run_exactly(reference_, reference_.tokens("short"));
  expect_close(exact.value(reference_.graph->outputs()[0]), reference_.tensor("short.logits"), "logits",
               exact_limit_of(reference_.name));
  for (size_t i = 0; i < reference_.graph->hidden().size(); ++i) {
    expect_close(exact.value(reference_.graph->hidden()[i]),
                 reference_.tensor(fmt::format("short.hidden.{}", i)), fmt::format("hidden {}", i),
                 exact_limit_of(reference_.name));
  }
}

TEST_P(Golden, LogitsAndHiddenStatesOfEveryKernelSetAndChunk) {
  const std::vector<int32_t> tokens = reference_.tokens("short");
  const std::vector<float> expected = reference_.tensor("short.logits");
  ASSERT_FALSE(tokens.empty());
  const Limit limit = limit_of(reference_.name);
  const Limit exact_limit = exact_limit_of(reference_.name);
  const DoubleExecutor exact = run_exactly(reference_, tokens);
  for (const std::string& isa : available_isas()) {
    const ScopedIsa scope(isa);
    for (const int64_t chunk : {int64_t{1}, int64_t{7}, int64_t{64}}) {
      Runner runner(reference_.graph, reference_.weights, options(1, chunk));
      HiddenRecorder recorder(*reference_.graph);
      const std::string what = fmt::format("{} {} chunk {}", reference_.name, isa, chunk);
      const std::vector<float> logits = runner.logits(tokens, chunk, &recorder);
      expect_close(logits, expected, what + " logits", limit);
      expect_close(logits, exact.value(reference_.graph->outputs()[0]), what + " logits, exact", exact_limit);
      for (size_t i = 0; i < recorder.hidden().size(); ++i) {
        const std::string hidden = fmt::format("{} hidden {}", what, i);
        expect_close(recorder.hidden()[i], reference_.tensor(fmt::format("short.hidden.{}", i)), hidden,
                     limit);
        expect_close(recorder.hidden()[i], exact.value(reference_.graph->hidden()[i]), hidden + ", exact",
                     exact_limit);
      }
    }
  }
}

/// However a prompt is cut, its logits are the same but for the order of sums.
TEST_P(Golden, ChunksAgree) {
  const std::vector<int32_t> tokens = reference_.tokens("short");
  for (const std::string& isa : available_isas()) {
    const ScopedIsa scope(isa);
    Runner whole(reference_.graph, reference_.weights, options(1, 64));
    const std::vector<float> expected = whole.logits(tokens, 64);
    for (const int64_t chunk : {int64_t{1}, int64_t{7}}) {
      Runner runner(reference_.graph, reference_.weights, options(1, 64));
      expect_close(runner.logits(tokens, chunk), expected, fmt::format("{} chunk {}", isa, chunk),
                   exact_limit_of(reference_.name));
    }
  }
}

TEST_P(Golden, ThirtyTwoGreedyTokens) {
  const std::vector<int32_t> tokens = reference_.tokens("short");
  const std::vector<int32_t> expected = reference_.tokens("greedy_32_after_short");
  ASSERT_EQ(expected.size(), 32U);
  for (const std::string& isa : available_isas()) {
    const ScopedIsa scope(isa);
    Runner runner(reference_.graph, reference_.weights, options(2, 64));
    EXPECT_EQ(runner.greedy(runner.logits(tokens, 64), 32), expected) << isa;
  }
}

double log_likelihood(std::span<const float> logits, int32_t token) {
  double largest = -INFINITY;
  for (const float logit : logits) largest = std::max(largest, static_cast<double>(logit));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return logits[static_cast<size_t>(token)] - largest - std::log(sum);
}

TEST_P(Golden, LongText) {
  const std::vector<int32_t> tokens = reference_.tokens("long");
  const std::vector<float> expected_nll = reference_.tensor("long.nll");
  const std::vector<float> expected_last = reference_.tensor("long.last_logits");
  ASSERT_EQ(expected_nll.size(), tokens.size() - 1);
  const auto vocabulary = static_cast<size_t>(reference_.vocabulary);
  for (const std::string& isa : available_isas()) {
    const ScopedIsa scope(isa);
    Runner runner(reference_.graph, reference_.weights, options(2, 64));
    const std::vector<float> logits = runner.logits(tokens, 64);
    ASSERT_EQ(logits.size(), tokens.size() * vocabulary);
    expect_close({logits.end() - static_cast<std::ptrdiff_t>(expected_last.size()), logits.end()},
                 expected_last, isa + " last logits", long_limit_of(reference_.name));
    double sum = 0;
    std::vector<float> nll;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      nll.push_back(static_cast<float>(
          -log_likelihood(std::span(logits).subspan(i * vocabulary, vocabulary), tokens[i + 1])));
      sum += nll.back();
    }
    expect_close(nll, expected_nll, isa + " nll", long_limit_of(reference_.name));
    const double mean = reference_.facts["long_mean_nll"].get<double>();
    EXPECT_NEAR(sum / static_cast<double>(nll.size()), mean, Limit{}.distance * mean) << isa;
  }
}

/// In prefill and, token by token, in decoding.
TEST_P(Golden, ThreadsDoNotChangeABit) {
  const std::vector<int32_t> tokens = reference_.tokens("short");
  for (const std::string& isa : available_isas()) {
    const ScopedIsa scope(isa);
    for (const int64_t chunk : {int64_t{1}, int64_t{16}}) {
      Runner one(reference_.graph, reference_.weights, options(1, chunk));
      const std::vector<float> expected = one.logits(tokens, chunk);
      for (const int threads : {2, 3, 7}) {
        Runner runner(reference_.graph, reference_.weights, options(threads, chunk));
        EXPECT_EQ(runner.logits(tokens, chunk), expected)
            << isa << " chunk " << chunk << " threads " << threads;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::ValuesIn(case_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hexlm
