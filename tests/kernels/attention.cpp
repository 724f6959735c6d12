#include <algorithm>
#include <limits>

#include "kernels/kernel_test.hpp"

namespace hexlm::test {
namespace {

/// A step of `tokens` queries after `past` entries, all with `heads` heads of one key/value head.
struct Step {
  int64_t heads;
  int64_t head_dim;
  int64_t past;
  int64_t tokens;
  CacheType cache;
  std::vector<float> query;
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<uint16_t> half_keys;
  std::vector<uint16_t> half_values;
  std::vector<int8_t> int8_keys;
  std::vector<int8_t> int8_values;
  std::vector<float> key_scales;
  std::vector<float> value_scales;

  Step(Random& random, int64_t head_count, int64_t dim, int64_t past_entries, int64_t token_count,
       CacheType cache_type, float size = 1.0F)
      : heads(head_count), head_dim(dim), past(past_entries), tokens(token_count), cache(cache_type) {
    query = random.normals(tokens * stride(), size);
    keys = random.normals((past + tokens) * head_dim, size);
    values = random.normals((past + tokens) * head_dim);
    for (const float key : keys) half_keys.push_back(float_to_half(key));
    for (const float value : values) half_values.push_back(float_to_half(value));
    quantize(keys, int8_keys, key_scales);
    quantize(values, int8_values, value_scales);
  }
  void quantize(const std::vector<float>& from, std::vector<int8_t>& numbers,
                std::vector<float>& scales) const {
    numbers.resize(from.size());
    scales.resize(from.size() / static_cast<size_t>(head_dim));
    for (size_t entry = 0; entry < scales.size(); ++entry) {
      const size_t first = entry * static_cast<size_t>(head_dim);
      reference_kernels().store_int8(from.data() + first, numbers.data() + first, &scales[entry], head_dim);
    }
  }
  int64_t stride() const { return heads * head_dim + 5; }

  void run(const KernelSet& set, int64_t token_begin, int64_t token_end, std::vector<float>& output) const {
    std::vector<float> scratch(static_cast<size_t>(attention_scratch(head_dim)));
    AttentionArguments arguments{.query = query.data(),
                                 .query_stride = stride(),
                                 .heads = heads,
                                 .head_dim = head_dim,
                                 .cache = cache,
                                 .keys = keys.data(),
                                 .values = values.data(),
                                 .key_scales = key_scales.data(),
                                 .value_scales = value_scales.data(),
                                 .past = past,
                                 .token_begin = token_begin,
                                 .token_end = token_end,
                                 .scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
                                 .output = output.data(),
                                 .output_stride = stride(),
                                 .scratch = scratch.data()};
    if (cache == CacheType::f16) {
      arguments.keys = half_keys.data();
      arguments.values = half_values.data();
    } else if (cache == CacheType::int8) {
      arguments.keys = int8_keys.data();
      arguments.values = int8_values.data();
    }
    set.attention(arguments);
  }
  std::vector<float> run(const KernelSet& set) const {
    std::vector<float> output(static_cast<size_t>(tokens * stride()), -77.0F);
    run(set, 0, tokens, output);
    return output;
  }
};

class AttentionTest : public KernelTest {};
HEXLM_FOR_EVERY_SET(AttentionTest);

TEST_P(AttentionTest, EqualsTheTruthForRandomShapes) {
  Random random(40);
  for (const int64_t head_dim : {1, 7, 8, 16, 24, 40, 64, 72, 80, 128, 256}) {
    for (int round = 0; round < 6; ++round) {
      const CacheType cache = cache_types[static_cast<size_t>(round % 3)];
      const int64_t heads = random.between(1, 8);
      const int64_t past = random.between(0, 1) * random.between(0, 150);
      const int64_t tokens = random.between(1, 40);
      SCOPED_TRACE(testing::Message() << "heads " << heads << " dim " << head_dim << " past " << past
                                      << " tokens " << tokens << " " << to_string(cache));
      const Step step(random, heads, head_dim, past, tokens, cache);
      const std::vector<float> expected = step.run(truth());
      const std::vector<float> actual = step.run(set());
      double largest = 0;
      for (const float value : step.values)
        largest = std::max(largest, static_cast<double>(std::fabs(value)));
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(close(actual[i], expected[i], kernel_tolerance("attention"), largest)) << i;
      }
    }
  }
}

TEST_P(AttentionTest, SeesNothingAfterTheQuery) {
  Random random(41);
  Step step(random, 3, 32, 10, 50, CacheType::f32);
  const std::vector<float> before = step.run(set());
  // Token 20 sees entries 0 … 30.
  for (int64_t i = 31 * 32; i < 60 * 32; ++i) step.keys[i] = step.values[i] = 1e6F;
  const std::vector<float> after = step.run(set());
  for (int64_t token = 0; token < 50; ++token) {
    const auto first = static_cast<int64_t>(token * step.stride());
    const bool same = std::equal(before.begin() + first, before.begin() + first + 96, after.begin() + first);
    EXPECT_EQ(same, token <= 20) << token;
  }
}

TEST_P(AttentionTest, DoesNotDependOnHowTokensAreSplit) {
  Random random(42);
  for (const CacheType cache : cache_types) {
    const Step step(random, 7, 64, 45, 37, cache);
    const std::vector<float> whole = step.run(set());
    std::vector<float> parts(whole.size(), -77.0F);
    step.run(set(), 20, 37, parts);
    step.run(set(), 0, 1, parts);
    step.run(set(), 1, 20, parts);
    EXPECT_EQ(parts, whole) << to_string(cache);
  }
}

TEST_P(AttentionTest, OverInt8EqualsAttentionOverTheSameNumbersAsFloats) {
  Random random(44);
  Step step(random, 3, 80, 37, 9, CacheType::int8);
  const std::vector<float> actual = step.run(set());
  for (size_t i = 0; i < step.keys.size(); ++i) {
    step.keys[i] = static_cast<float>(step.int8_keys[i]) * step.key_scales[i / 80];
    step.values[i] = static_cast<float>(step.int8_values[i]) * step.value_scales[i / 80];
  }
  step.cache = CacheType::f32;
  const std::vector<float> expected = step.run(set());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(close(actual[i], expected[i], kernel_tolerance("attention"), 4.0)) << i;
  }
}

TEST_P(AttentionTest, PassesOnWhatAnInt8CacheCouldNotHold) {
  Random random(45);
  Step step(random, 1, 16, 4, 2, CacheType::int8);
  step.values[2 * 16 + 3] = std::numeric_limits<float>::infinity();
  step.quantize(step.values, step.int8_values, step.value_scales);
  for (const float value : step.run(set())) EXPECT_TRUE(std::isnan(value) || value == -77.0F);
}

TEST_P(AttentionTest, HoldsLargeScoresAndPassesNanOn) {
  Random random(43);
  // Scores of some thousand: only their differences matter.
  const Step step(random, 2, 64, 70, 3, CacheType::f32, 40.0F);
  const std::vector<float> expected = step.run(truth());
  const std::vector<float> actual = step.run(set());
  for (size_t i = 0; i < expected.size(); ++i) {
    // A score's rounding error, some 1e-3 here, is the relative error of its weight.
    ASSERT_TRUE(close(actual[i], expected[i], 5e-3, 4.0)) << i;
  }
  Step broken(random, 2, 16, 5, 4, CacheType::f32);
  broken.query[broken.stride() + 3] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> output = broken.run(set());
  for (int64_t token = 0; token < 4; ++token) {
    for (int64_t i = 0; i < 32; ++i) {
      EXPECT_EQ(std::isnan(output[token * broken.stride() + i]), token == 1 && i < 16);
    }
  }
}

}  // namespace
}  // namespace hexlm::test
