#include "evaluation/compare.hpp"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "base/atomic_file.hpp"
#include "evaluation/compare_report.hpp"
#include "formats/safetensors.hpp"
#include "quantization/export.hpp"
#include "runtime/tiny_model.hpp"
#include "support/temporary_folder.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

std::vector<int32_t> some_tokens(size_t count, int32_t vocabulary) {
  std::mt19937 generator(5);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(generator() % static_cast<uint32_t>(vocabulary));
  return tokens;
}

void export_to(const std::string& checkpoint, const std::string& package, const char* codec) {
  ExportOptions options;
  options.checkpoint = checkpoint;
  options.package = package;
  options.linear = *parse_codec(codec);
  options.threads = 2;
  const auto plan = plan_export(options);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto result = export_package(options, *plan, nullptr);
  ASSERT_TRUE(result) << result.error().message;
}

/// All logits of one window, [tokens, vocabulary].
std::vector<float> all_logits(Session& session, std::span<const int32_t> tokens) {
  std::vector<float> all;
  session.reset();
  EXPECT_TRUE(session.forward(tokens, static_cast<int64_t>(tokens.size()),
                              [&all](int64_t, int64_t, std::span<const float> rows) -> Status {
                                all.insert(all.end(), rows.begin(), rows.end());
                                return {};
                              }));
  return all;
}

std::vector<long double> softmax(std::span<const float> logits) {
  std::vector<long double> p;
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  for (const float logit : logits) p.push_back(std::exp(static_cast<long double>(logit)) / sum);
  return p;
}

TEST(CompareOutputs, AgreesWithAnIndependentComputation) {
  const TemporaryFolder folder;
  const std::string checkpoint = test_data("reference/qwen2_tied/checkpoint");
  export_to(checkpoint, folder.file("w4"), "w4g32");
  const auto reference = open_session(*Model::open(checkpoint, {2, true, {}}), high_precision());
  const auto other = open_session(*Model::open(folder.file("w4"), {2, true, {}}), high_precision());
  ASSERT_TRUE(reference && other);
  constexpr size_t vocabulary = 512;
  constexpr size_t window = 24;
  const std::vector<int32_t> tokens = some_tokens(60, vocabulary);
  CompareOptions options;
  options.window = window;
  options.greedy_tokens = 0;
  const auto result = compare(*reference, *other, tokens, options, nullptr);
  ASSERT_TRUE(result) << result.error().message;

  long double kl = 0;
  long double largest_kl = 0;
  long double nll = 0;
  long double reference_nll = 0;
  size_t same = 0;
  size_t shared5 = 0;
  size_t scored = 0;
  for (size_t begin = 0; begin < tokens.size(); begin += window) {
    const auto part =
        std::span<const int32_t>(tokens).subspan(begin, std::min(window, tokens.size() - begin));
    const std::vector<float> a = all_logits(*reference, part);
    const std::vector<float> b = all_logits(*other, part);
    for (size_t t = 0; t < part.size(); ++t) {
      const auto p = softmax(std::span(a).subspan(t * vocabulary, vocabulary));
      const auto q = softmax(std::span(b).subspan(t * vocabulary, vocabulary));
      long double row = 0;
      for (size_t i = 0; i < vocabulary; ++i) row += p[i] * std::log(p[i] / q[i]);
      kl += row;
      largest_kl = std::max(largest_kl, row);
      const auto rank = [](const std::vector<long double>& values, size_t id) {
        return std::count_if(values.begin(), values.end(), [&](long double v) { return v > values[id]; });
      };
      for (size_t i = 0; i < vocabulary; ++i) {
        if (rank(p, i) == 0 && rank(q, i) == 0) ++same;
        if (rank(p, i) < 5 && rank(q, i) < 5) ++shared5;
      }
      if (t + 1 == part.size()) continue;
      reference_nll -= std::log(p[static_cast<size_t>(part[t + 1])]);
      nll -= std::log(q[static_cast<size_t>(part[t + 1])]);
      ++scored;
    }
  }
  const OutputDifference& outputs = result->outputs;
  const auto count = static_cast<double>(tokens.size());
  EXPECT_EQ(outputs.positions(), 60);
  EXPECT_EQ(outputs.scored(), static_cast<int64_t>(scored));
  EXPECT_NEAR(outputs.kl_mean(), static_cast<double>(kl) / count, 1e-6);
  EXPECT_NEAR(outputs.kl_max(), static_cast<double>(largest_kl), 1e-6);
  EXPECT_GT(outputs.kl_mean(), 1e-5);  // there was something to measure
  EXPECT_NEAR(outputs.top1_agreement(), static_cast<double>(same) / count, 1e-6);
  EXPECT_NEAR(outputs.top5_agreement(), static_cast<double>(shared5) / (5 * count), 1e-6);
  const auto perplexity = [scored](long double sum) {
    return std::exp(static_cast<double>(sum) / static_cast<double>(scored));
  };
  EXPECT_NEAR(outputs.reference_perplexity() / perplexity(reference_nll), 1, 1e-6);
  EXPECT_NEAR(outputs.perplexity() / perplexity(nll), 1, 1e-6);
}

TEST(CompareLayers, OfAModelWithItselfIsExact) {
  const auto model = open_tiny_model();
  const auto a = open_session(model, high_precision());
  SessionOptions settings = high_precision();
  settings.threads = 1;
  settings.chunk = 7;
  const auto b = open_session(model, settings);
  CompareOptions options;
  options.greedy_tokens = 8;
  const auto result = compare(*a, *b, some_tokens(48, 6000), options, nullptr);
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_TRUE(result->layers);
  for (const NodeDifference& node : result->layers->nodes()) {
    if (!node.compared) continue;
    EXPECT_GT(node.local.count(), 0) << node.name;
    EXPECT_EQ(node.local.count(), node.global.count()) << node.name;
    EXPECT_GT(node.local.snr_db(), 90) << node.name;
    EXPECT_GT(node.global.snr_db(), 90) << node.name;
  }
  EXPECT_FALSE(result->layers->first_divergence());
  EXPECT_EQ(result->outputs.top1_agreement(), 1);
  ASSERT_TRUE(result->parting);
  EXPECT_FALSE(result->parting->position);
}

/// Permutes the scales of one tensor in a package's file.
void shuffle_scales(const std::string& package, const std::string& tensor, uint32_t seed) {
  const std::string path = package + "/weights.safetensors";
  size_t offset = 0;
  size_t count = 0;
  {
    const auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file);
    const TensorView* view = file->find(tensor + ".scales");
    ASSERT_NE(view, nullptr) << tensor;
    offset = static_cast<size_t>(view->bytes.data() - file->file().bytes().data());
    count = view->bytes.size() / sizeof(uint16_t);
  }
  std::string content = read_test_file(path);
  std::vector<uint16_t> scales(count);
  std::memcpy(scales.data(), content.data() + offset, count * sizeof(uint16_t));
  std::mt19937 generator(seed);
  for (size_t i = count - 1; i > 0; --i) std::swap(scales[i], scales[generator() % (i + 1)]);
  std::memcpy(content.data() + offset, scales.data(), count * sizeof(uint16_t));
  write_test_file(path, content);
}

TEST(CompareLayers, NamesTheDamagedTensorFirst) {
  const TemporaryFolder folder;
  const std::string good = folder.file("good");
  export_to(test_data("models/tiny-vl"), good, "w4g64");
  const auto reference = open_session(open_tiny_model(), high_precision());
  std::vector<std::string> linears;
  const auto graph = open_tiny_model()->graph();
  for (const Node& node : graph->nodes()) {
    if (!std::holds_alternative<op::Linear>(node.op)) continue;
    const Parameter& parameter = graph->parameter(node.parameters[0]);
    if (parameter.role == ParameterRole::linear) linears.push_back(node.name);
  }
  ASSERT_GT(linears.size(), 40U);
  std::mt19937 generator(11);
  std::shuffle(linears.begin(), linears.end(), generator);
  linears.resize(10);
  linears[0] = "layers.5.mlp.down_proj";
  const auto text = read_file(test_data("models/tiny-vl/eval/heldout.txt"));
  auto tokens = *open_tiny_model()->tokenizer()->encode(*text);
  tokens.resize(64);
  CompareOptions options;
  options.greedy_tokens = 0;
  options.threads = 2;
  for (size_t i = 0; i < linears.size(); ++i) {
    const std::string damaged = folder.file("damaged");
    std::filesystem::copy(good, damaged, std::filesystem::copy_options::recursive);
    shuffle_scales(damaged, linears[i] + ".weight", static_cast<uint32_t>(i));
    const auto model = Model::open(damaged, {2, false, {}});
    ASSERT_TRUE(model) << model.error().message;
    const auto other = open_session(*model, high_precision());
    const auto result = compare(*reference, *other, tokens, options, nullptr);
    ASSERT_TRUE(result) << result.error().message;
    const auto& nodes = result->layers->nodes();
    EXPECT_EQ(nodes[result->layers->culprits()[0]].name, linears[i]);
    const auto first = result->layers->first_divergence();
    EXPECT_TRUE(first && nodes[*first].name == linears[i])
        << linears[i] << ": " << nodes[result->layers->culprits()[0]].excess_db() << " dB";
    std::filesystem::remove_all(damaged);
  }
}

TEST(CompareLayers, FeedsTheReferencesInputs) {
  // The error of quantized weights builds up globally, and stays what it is locally.
  const TemporaryFolder folder;
  export_to(test_data("models/tiny-vl"), folder.file("w4"), "w4g64");
  const auto a = open_session(open_tiny_model(), high_precision());
  const auto b = open_session(*Model::open(folder.file("w4"), {2, true, {}}), high_precision());
  CompareOptions options;
  options.greedy_tokens = 0;
  options.layer_bytes = 1;  // a token at a time, which must not change the values
  const auto tokens = some_tokens(24, 6000);
  const auto single = compare(*a, *b, tokens, options, nullptr);
  options.layer_bytes = int64_t{1} << 30;
  const auto together = compare(*a, *b, tokens, options, nullptr);
  ASSERT_TRUE(single && together);
  for (size_t i = 0; i < together->layers->nodes().size(); ++i) {
    const NodeDifference& node = together->layers->nodes()[i];
    if (!node.compared) continue;
    const NodeDifference& same = single->layers->nodes()[i];
    EXPECT_EQ(node.local.count(), same.local.count());
    EXPECT_NEAR(node.global.relative_error(), same.global.relative_error(), 1e-3) << node.name;
    EXPECT_NEAR(node.local.relative_error(), same.local.relative_error(), 1e-3) << node.name;
    // Ops without weights repeat the reference but for rounding.
    if (node.op == "silu_multiply" || node.op == "add") {
      EXPECT_GT(node.local.snr_db(), 100) << node.name;
    }
    if (node.name == "layers.7.mlp.down_proj") {
      EXPECT_GT(node.local.snr_db(), node.global.snr_db() + 3);
    }
  }
}

TEST(Compare, RefusesWhatCannotBeCompared) {
  const auto a = open_session(open_tiny_model(), high_precision());
  const auto b =
      open_session(*Model::open(test_data("reference/qwen3/checkpoint"), {2, true, {}}), high_precision());
  CompareOptions options;
  EXPECT_THAT(compare(*a, *b, some_tokens(8, 100), options, nullptr).error().message,
              HasSubstr("vocabulary"));
  options.window = 100000;
  EXPECT_EQ(compare(*a, *a, some_tokens(8, 100), options, nullptr).error().code, ErrorCode::usage);
  const auto c = open_session(*Model::open(test_data("reference/qwen2_tied/checkpoint"), {2, true, {}}),
                              high_precision());
  const auto d = open_session(
      *Model::open(test_data("reference/qwen2_untied_sharded/checkpoint"), {2, true, {}}), high_precision());
  options.window = 8;
  EXPECT_THAT(compare(*b, *c, some_tokens(8, 100), options, nullptr).error().message,
              HasSubstr("the models differ at node"));
}

TEST(ValueDifference, IsTheFormulas) {
  ThreadPool pool(2);
  ValueDifference difference;
  difference.add(std::vector<float>{3, 0}, std::vector<float>{3, 4}, pool);
  difference.add(std::vector<float>{0, 4}, std::vector<float>{0, 4}, pool);
  EXPECT_NEAR(difference.relative_error(), std::sqrt(16.0 / 25.0), 1e-12);
  EXPECT_NEAR(difference.snr_db(), 10 * std::log10(25.0 / 16.0), 1e-12);
  EXPECT_NEAR(difference.cosine(), 25 / std::sqrt(25.0 * 41.0), 1e-12);
  EXPECT_EQ(difference.max_abs(), 4);
  EXPECT_EQ(difference.count(), 4);
  ValueDifference bad;
  bad.add(std::vector<float>{1}, std::vector<float>{std::numeric_limits<float>::quiet_NaN()}, pool);
  EXPECT_FALSE(bad.finite());
  EXPECT_EQ(bad.snr_db(), -std::numeric_limits<double>::infinity());
  ValueDifference bad_reference;
  bad_reference.add(std::vector<float>{std::numeric_limits<float>::quiet_NaN()}, std::vector<float>{1}, pool);
  EXPECT_FALSE(bad_reference.finite());
  EXPECT_EQ(bad_reference.snr_db(), -std::numeric_limits<double>::infinity());
  // The same sums with any number of threads.
  std::vector<float> a(100000);
  std::vector<float> b(100000);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    b[i] = a[i] * 1.01F;
  }
  ThreadPool single(1);
  ValueDifference two;
  ValueDifference one;
  two.add(a, b, pool);
  one.add(a, b, single);
  EXPECT_EQ(one.relative_error(), two.relative_error());
  EXPECT_NEAR(one.relative_error(), 0.01, 1e-6);
}

TEST(CheckLimits, FailsWhatIsNoNumber) {
  CompareResult result;
  ThreadPool pool(1);
  const std::vector<int64_t> target = {0};
  result.outputs.add(std::vector<float>{1, 2}, std::vector<float>{1, 2}, target, pool);
  CompareLimits limits;
  limits.max_perplexity_increase = 0.3;
  limits.min_top1 = 1;
  for (const LimitCheck& check : check_limits(result, limits)) EXPECT_TRUE(check.passed) << check.name;
  result.outputs.add(std::vector<float>{1, 2}, std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()},
                     target, pool);
  for (const LimitCheck& check : check_limits(result, limits)) EXPECT_FALSE(check.passed) << check.name;
  EXPECT_EQ(compare_json(result, check_limits(result, limits), nullptr)["verdict"], "fail");
}

}  // namespace
}  // namespace hexlm
