#include <algorithm>
#include <limits>

#include "kernels/kernel_test.hpp"

namespace hexlm::test {
namespace {

class VisionKernelTest : public KernelTest {};
HEXLM_FOR_EVERY_SET(VisionKernelTest);

TEST_P(VisionKernelTest, LayerNorm) {
  Random random(50);
  for (const int64_t dim : {1, 2, 7, 8, 15, 16, 17, 33, 64, 72, 129, 1152}) {
    // A mean far above the deviation cancels most digits of what is left.
    for (const float mean : {0.0F, 3.0F, 1000.0F}) {
      std::vector<float> x = random.normals(3 * dim);
      for (float& value : x) value += mean;
      const std::vector<float> weight = random.normals(dim);
      const std::vector<float> bias = random.normals(dim);
      std::vector<float> expected(x.size());
      std::vector<float> actual(x.size());
      truth().layer_norm(x.data(), weight.data(), bias.data(), expected.data(), 3, dim, 1e-6F);
      set().layer_norm(x.data(), weight.data(), bias.data(), actual.data(), 3, dim, 1e-6F);
      for (size_t i = 0; i < x.size(); ++i) {
        const float scale = std::fabs(weight[i % dim]);
        const double normal = scale > 0 ? std::fabs((expected[i] - bias[i % dim]) / scale) : 0;
        const double magnitude = std::max(1.0, normal) * scale + std::fabs(bias[i % dim]);
        ASSERT_TRUE(close(actual[i], expected[i], kernel_tolerance("layer_norm"), magnitude))
            << dim << " mean " << mean << " element " << i;
      }
      set().layer_norm(x.data(), weight.data(), bias.data(), x.data(), 3, dim, 1e-6F);
      EXPECT_EQ(x, actual);
    }
  }
}

TEST_P(VisionKernelTest, LayerNormOfConstantsAndNan) {
  const std::vector<float> weight(20, 2.0F);
  const std::vector<float> bias(20, 0.5F);
  std::vector<float> x(40, 0.1F);
  x[33] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> y(40);
  set().layer_norm(x.data(), weight.data(), bias.data(), y.data(), 2, 20, 1e-6F);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(y[i], 0.5F, 1e-4F);
    EXPECT_TRUE(std::isnan(y[20 + i]));
  }
}

void expect_gelu(void (*kernel)(const float*, float*, int64_t), void (*truth)(const float*, float*, int64_t),
                 double bound) {
  std::vector<float> x;
  for (int i = -12000; i <= 12000; ++i) x.push_back(static_cast<float>(i) * 1e-3F);
  for (const float size : {1e-30F, 1e-8F, 1e-4F, 20.0F, 100.0F, 1e10F, 1e25F}) {
    x.push_back(size);
    x.push_back(-size);
  }
  x.push_back(0);
  x.push_back(std::numeric_limits<float>::quiet_NaN());
  std::vector<float> expected(x.size());
  std::vector<float> actual(x.size());
  truth(x.data(), expected.data(), static_cast<int64_t>(x.size()));
  kernel(x.data(), actual.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_TRUE(close(actual[i], expected[i], bound, std::fabs(x[i]))) << x[i];
  for (const int64_t count : {1, 3, 8, 13, 16, 21}) {
    std::vector<float> some(x.begin() + 12100, x.begin() + 12100 + count + 1);
    kernel(some.data(), some.data(), count);
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(some[i], actual[12100 + i]) << count;
    ASSERT_EQ(some[count], x[12100 + count]);  // nothing beyond the end
  }
}

TEST_P(VisionKernelTest, Gelu) {
  expect_gelu(set().gelu_tanh, truth().gelu_tanh, kernel_tolerance("gelu_tanh"));
  expect_gelu(set().gelu_erf, truth().gelu_erf, kernel_tolerance("gelu_erf"));
  expect_gelu(set().gelu_quick, truth().gelu_quick, kernel_tolerance("gelu_quick"));
}

TEST_P(VisionKernelTest, AttentionInBothDirections) {
  Random random(51);
  for (const int64_t head_dim : {8, 40, 64, 72, 80}) {
    for (const int64_t entries : {1, 5, 32, 33, 64, 150}) {
      const int64_t tokens = random.between(1, 60);
      const int64_t stride = head_dim + 3;
      const std::vector<float> query = random.normals(tokens * stride);
      const std::vector<float> keys = random.normals(entries * head_dim);
      const std::vector<float> values = random.normals(entries * head_dim);
      const auto run = [&](const KernelSet& kernels) {
        std::vector<float> output(static_cast<size_t>(tokens * stride), -77.0F);
        std::vector<float> scratch(static_cast<size_t>(attention_scratch(head_dim)));
        kernels.attention({.query = query.data(),
                           .query_stride = stride,
                           .head_dim = head_dim,
                           .keys = keys.data(),
                           .values = values.data(),
                           .entries = entries,
                           .token_end = tokens,
                           .scale = 0.2F,
                           .output = output.data(),
                           .output_stride = stride,
                           .scratch = scratch.data()});
        return output;
      };
      const std::vector<float> expected = run(truth());
      const std::vector<float> actual = run(set());
      double largest = 0;
      for (const float value : values) largest = std::max(largest, static_cast<double>(std::fabs(value)));
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(close(actual[i], expected[i], kernel_tolerance("attention"), largest))
            << head_dim << " " << entries << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace hexlm::test
