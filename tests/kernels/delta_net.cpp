#include <algorithm>

#include "kernels/kernel_test.hpp"

namespace hexlm::test {
namespace {

struct Head {
  int64_t key_dim;
  int64_t value_dim;
  int64_t tokens;
  int64_t stride;
  std::vector<float> query;
  std::vector<float> key;
  std::vector<float> value;
  std::vector<float> log_decay;
  std::vector<float> beta;
  std::vector<float> state;

  Head(Random& random, int64_t keys, int64_t values, int64_t token_count)
      : key_dim(keys), value_dim(values), tokens(token_count), stride(std::max(keys, values) + 3) {
    query = random.normals(tokens * stride);
    key = random.normals(tokens * stride);
    value = random.normals(tokens * stride);
    for (int64_t i = 0; i < tokens * 2; ++i) {
      log_decay.push_back(-std::fabs(random.normal(0.5F)));
      beta.push_back(1.0F / (1.0F + std::exp(random.normal())));
    }
    state = random.normals(keys * values, 0.3F);
  }

  /// Tokens first … last−1; returns their outputs and updates the state.
  std::vector<float> run(const KernelSet& set, std::vector<float>& from, int64_t first, int64_t last) const {
    std::vector<float> output(static_cast<size_t>((last - first) * value_dim));
    std::vector<float> scratch(static_cast<size_t>(delta_net_scratch(key_dim)));
    set.delta_net({.query = query.data() + first * stride,
                   .key = key.data() + first * stride,
                   .value = value.data() + first * stride,
                   .stride = stride,
                   .log_decay = log_decay.data() + first * 2,
                   .beta = beta.data() + first * 2,
                   .gate_stride = 2,
                   .tokens = last - first,
                   .key_dim = key_dim,
                   .value_dim = value_dim,
                   .epsilon = 1e-6F,
                   .state = from.data(),
                   .output = output.data(),
                   .output_stride = value_dim,
                   .scratch = scratch.data()});
    return output;
  }
};

class DeltaNetTest : public KernelTest {};
HEXLM_FOR_EVERY_SET(DeltaNetTest);

void expect_close(const std::vector<float>& actual, const std::vector<float>& expected, double bound) {
  double largest = 0;
  for (const float value : expected) largest = std::max(largest, static_cast<double>(std::fabs(value)));
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_TRUE(close(actual[i], expected[i], bound, largest)) << i;
}

TEST_P(DeltaNetTest, EqualsTheTruthForRandomShapes) {
  Random random(50);
  for (int round = 0; round < 40; ++round) {
    const int64_t key_dim = round % 4 == 0 ? 128 : random.between(1, 130);
    const int64_t value_dim = round % 4 == 0 ? 128 : random.between(1, 150);
    const Head head(random, key_dim, value_dim, random.between(1, 90));
    SCOPED_TRACE(testing::Message() << key_dim << "x" << value_dim << " tokens " << head.tokens);
    std::vector<float> expected_state = head.state;
    std::vector<float> actual_state = head.state;
    const std::vector<float> expected = head.run(truth(), expected_state, 0, head.tokens);
    const std::vector<float> actual = head.run(set(), actual_state, 0, head.tokens);
    expect_close(actual, expected, kernel_tolerance("delta_net"));
    expect_close(actual_state, expected_state, kernel_tolerance("delta_net"));
    if (HasFatalFailure()) return;
  }
}

TEST_P(DeltaNetTest, EqualsTheTruthAroundTheEndsOfChunks) {
  Random random(53);
  for (const int64_t tokens : {1, 2, 7, 8, 9, 63, 64, 65, 71, 72, 130, 200}) {
    for (const int64_t dim : {32, 128}) {
      const Head head(random, dim, dim, tokens);
      SCOPED_TRACE(testing::Message() << dim << " tokens " << tokens);
      std::vector<float> expected_state = head.state;
      std::vector<float> actual_state = head.state;
      const std::vector<float> expected = head.run(truth(), expected_state, 0, tokens);
      expect_close(head.run(set(), actual_state, 0, tokens), expected, kernel_tolerance("delta_net"));
      expect_close(actual_state, expected_state, kernel_tolerance("delta_net"));
      if (HasFatalFailure()) return;
    }
  }
}

/// The state goes from call to call; where chunks begin changes no more than rounding.
TEST_P(DeltaNetTest, HowTokensAreSplitIsWithinRounding) {
  Random random(51);
  const Head head(random, 128, 128, 140);
  std::vector<float> state = head.state;
  const std::vector<float> whole = head.run(set(), state, 0, head.tokens);
  for (const std::vector<int64_t>& ends :
       {std::vector<int64_t>{7, 140}, {64, 140}, {1, 2, 66, 139, 140}, {100, 108, 140}}) {
    std::vector<float> split_state = head.state;
    std::vector<float> parts;
    int64_t first = 0;
    for (const int64_t end : ends) {
      const std::vector<float> part = head.run(set(), split_state, first, end);
      parts.insert(parts.end(), part.begin(), part.end());
      first = end;
    }
    expect_close(parts, whole, kernel_tolerance("delta_net"));
    expect_close(split_state, state, kernel_tolerance("delta_net"));
  }
}

/// Decays add up to hundreds in the exponent. What later tokens lose to each other must not suffer from it.
TEST_P(DeltaNetTest, StrongDecayEarlierInAChunkCostsNoPrecision) {
  Random random(54);
  Head head(random, 64, 64, 60);
  for (int64_t token = 0; token < head.tokens; ++token) {
    head.log_decay[token * 2] = token < 20 ? -20.3F - 0.01F * static_cast<float>(token) : -0.013F;
  }
  std::vector<float> expected_state = head.state;
  std::vector<float> actual_state = head.state;
  const std::vector<float> expected = head.run(truth(), expected_state, 0, head.tokens);
  expect_close(head.run(set(), actual_state, 0, head.tokens), expected, 2e-6);
  expect_close(actual_state, expected_state, 2e-6);
}

TEST_P(DeltaNetTest, InfiniteDecayForgetsEverythingBefore) {
  Random random(55);
  Head head(random, 64, 40, 30);
  head.log_decay[20 * 2] = -INFINITY;
  std::vector<float> state = head.state;
  const std::vector<float> whole = head.run(set(), state, 0, head.tokens);
  std::vector<float> fresh(head.state.size());
  const std::vector<float> later = head.run(set(), fresh, 20, head.tokens);
  expect_close({whole.begin() + 20 * head.value_dim, whole.end()}, later, kernel_tolerance("delta_net"));
  expect_close(state, fresh, kernel_tolerance("delta_net"));
}

TEST_P(DeltaNetTest, ZeroInputsLeaveADecayedState) {
  Random random(52);
  Head head(random, 32, 48, 1);
  std::fill(head.query.begin(), head.query.end(), 0.0F);
  std::fill(head.key.begin(), head.key.end(), 0.0F);
  std::vector<float> state = head.state;
  const std::vector<float> output = head.run(set(), state, 0, 1);
  for (const float value : output) EXPECT_EQ(value, 0.0F);
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_FLOAT_EQ(state[i], head.state[i] * std::exp(head.log_decay[0]));
  }
}

class CausalConvolutionTest : public KernelTest {
 protected:
  struct Data {
    int64_t tokens;
    int64_t channels;
    int64_t taps;
    std::vector<float> x;
    std::vector<float> weight;
    std::vector<float> history;

    Data(Random& random, int64_t token_count, int64_t channel_count, int64_t tap_count)
        : tokens(token_count),
          channels(channel_count),
          taps(tap_count),
          x(random.normals(tokens * channels)),
          weight(random.normals(channels * taps)),
          history(random.normals((taps - 1) * channels)) {}

    double magnitude(int64_t token, int64_t channel) const {
      double sum = 0;
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t at = token + tap - (taps - 1);
        const float input =
            at < 0 ? history[(at + taps - 1) * channels + channel] : x[at * channels + channel];
        sum += std::fabs(static_cast<double>(input) * weight[channel * taps + tap]);
      }
      return sum;
    }
  };
};
HEXLM_FOR_EVERY_SET(CausalConvolutionTest);

TEST_P(CausalConvolutionTest, EqualsTheTruthForRandomShapes) {
  Random random(53);
  for (int round = 0; round < 40; ++round) {
    const Data data(random, random.between(1, 9), random.between(1, 100),
                    round % 5 == 0 ? random.between(1, 6) : 4);
    SCOPED_TRACE(testing::Message() << data.tokens << " tokens " << data.channels << " channels "
                                    << data.taps);
    std::vector<float> expected(data.x.size());
    std::vector<float> actual(data.x.size());
    std::vector<float> expected_history = data.history;
    std::vector<float> actual_history = data.history;
    truth().causal_convolution(data.x.data(), data.tokens, data.channels, data.weight.data(), data.taps,
                               expected_history.data(), expected.data(), 0, data.channels);
    const int64_t middle = data.channels / 3;
    set().causal_convolution(data.x.data(), data.tokens, data.channels, data.weight.data(), data.taps,
                             actual_history.data(), actual.data(), middle, data.channels);
    set().causal_convolution(data.x.data(), data.tokens, data.channels, data.weight.data(), data.taps,
                             actual_history.data(), actual.data(), 0, middle);
    EXPECT_EQ(actual_history, expected_history);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      ASSERT_TRUE(close(actual[i], expected[i], kernel_tolerance("causal_convolution"),
                        data.magnitude(at / data.channels, at % data.channels)));
    }
  }
}

TEST_P(CausalConvolutionTest, LastTapMeetsTheCurrentToken) {
  const std::vector<float> weight = {0, 0, 0, 1};
  const std::vector<float> x = {3.0F, -2.0F};
  std::vector<float> history = {10, 20, 30};
  std::vector<float> y(2);
  set().causal_convolution(x.data(), 2, 1, weight.data(), 4, history.data(), y.data(), 0, 1);
  EXPECT_FLOAT_EQ(y[0], 3.0F / (1 + std::exp(-3.0F)));
  EXPECT_FLOAT_EQ(y[1], -2.0F / (1 + std::exp(2.0F)));
  EXPECT_EQ(history, (std::vector<float>{30, 3, -2}));
}

}  // namespace
}  // namespace hexlm::test
