#include <limits>

#include "kernels/kernel_test.hpp"

namespace hexlm::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

class ElementwiseTest : public KernelTest {
 protected:
  static void expect_relative(const std::vector<float>& actual, const std::vector<float>& expected,
                              double bound) {
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(close(actual[i], expected[i], bound, std::fabs(expected[i]))) << "element " << i;
    }
  }
  /// Lengths around every vector width.
  static std::vector<int64_t> lengths() { return {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 129, 896}; }
};
HEXLM_FOR_EVERY_SET(ElementwiseTest);

TEST_P(ElementwiseTest, RmsNorm) {
  Random random(30);
  for (const int64_t dim : lengths()) {
    for (const float size : {1e-25F, 1e-3F, 1.0F, 1e4F, 1e25F}) {
      const int64_t rows = random.between(1, 4);
      const int64_t stride = dim + random.between(0, 3);
      const std::vector<float> x = random.normals((rows - 1) * stride + dim, size);
      const std::vector<float> weight = random.normals(dim);
      const float offset = random.between(0, 1) == 0 ? 0.0F : 1.0F;
      std::vector<float> expected(static_cast<size_t>(rows * dim));
      std::vector<float> actual(expected.size());
      truth().rms_norm(x.data(), stride, weight.data(), expected.data(), dim, rows, dim, 1e-6F, offset);
      set().rms_norm(x.data(), stride, weight.data(), actual.data(), dim, rows, dim, 1e-6F, offset);
      for (size_t i = 0; i < expected.size(); ++i) {
        // weight + offset may cancel, so it is rounded once before it scales.
        const double magnitude = std::fabs(expected[i]) / (std::fabs(weight[i % dim] + offset) + 1e-30) *
                                 (std::fabs(weight[i % dim]) + offset);
        ASSERT_TRUE(close(actual[i], expected[i], kernel_tolerance("rms_norm"), magnitude))
            << dim << " " << i;
      }
      std::vector<float> in_place = x;
      set().rms_norm(in_place.data(), stride, weight.data(), in_place.data(), stride, rows, dim, 1e-6F,
                     offset);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < dim; ++i) ASSERT_EQ(in_place[row * stride + i], actual[row * dim + i]);
      }
    }
  }
}

TEST_P(ElementwiseTest, RmsNormOfZerosAndNan) {
  const std::vector<float> weight(40, 2.0F);
  std::vector<float> x(80, 0.0F);
  x[40 + 33] = nan_value;
  std::vector<float> y(80, 1.0F);
  set().rms_norm(x.data(), 40, weight.data(), y.data(), 40, 2, 40, 1e-6F, 0.0F);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(y[i], 0.0F);
    EXPECT_TRUE(std::isnan(y[40 + i]));
  }
}

TEST_P(ElementwiseTest, GatedRmsNorm) {
  Random random(31);
  for (const int64_t dim : lengths()) {
    const std::vector<float> x = random.normals(3 * dim);
    const std::vector<float> gate = random.normals(3 * dim, 6.0F);
    const std::vector<float> weight = random.normals(dim);
    std::vector<float> expected(x.size());
    std::vector<float> actual(x.size());
    truth().gated_rms_norm(x.data(), gate.data(), weight.data(), expected.data(), 3, dim, 1e-6F);
    set().gated_rms_norm(x.data(), gate.data(), weight.data(), actual.data(), 3, dim, 1e-6F);
    expect_relative(actual, expected, kernel_tolerance("gated_rms_norm"));
  }
}

TEST_P(ElementwiseTest, RopeTurnsPairsHalfARotaryDimApart) {
  Random random(32);
  for (const int64_t half : {1, 4, 8, 9, 16, 24, 32, 40, 64}) {
    const int64_t rotary = 2 * half;
    const int64_t head_dim = rotary + random.between(0, 1) * 2 * half;
    const int64_t heads = random.between(1, 5);
    const std::vector<float> x = random.normals(heads * head_dim);
    std::vector<float> cosine;
    std::vector<float> sine;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = random.normal(3.0F);
      cosine.push_back(std::cos(angle));
      sine.push_back(std::sin(angle));
    }
    std::vector<float> expected = x;
    std::vector<float> actual = x;
    truth().rope(expected.data(), heads, head_dim, rotary, cosine.data(), sine.data());
    set().rope(actual.data(), heads, head_dim, rotary, cosine.data(), sine.data());
    for (int64_t i = 0; i < heads * head_dim; ++i) {
      const int64_t within = i % head_dim;
      if (within >= rotary) {
        ASSERT_EQ(actual[i], x[i]);
        continue;
      }
      const int64_t other = within < half ? i + half : i - half;
      ASSERT_TRUE(
          close(actual[i], expected[i], kernel_tolerance("rope"), std::fabs(x[i]) + std::fabs(x[other])));
    }
  }
}

TEST_P(ElementwiseTest, Add) {
  Random random(33);
  for (const int64_t count : lengths()) {
    const std::vector<float> a = random.normals(count);
    const std::vector<float> b = random.normals(count);
    std::vector<float> expected(a.size());
    std::vector<float> actual = a;
    truth().add(a.data(), b.data(), expected.data(), count);
    set().add(actual.data(), b.data(), actual.data(), count);
    EXPECT_EQ(actual, expected);
  }
}

TEST_P(ElementwiseTest, SiluAndSigmoidOverTheWholeRange) {
  Random random(34);
  std::vector<float> gate;
  for (float x = -110.0F; x < 110.0F; x += 0.0371F) gate.push_back(x);
  for (const float x : {0.0F, -0.0F, 1e-40F, -1e-40F, 1e-10F, 3e38F, -3e38F, infinity}) gate.push_back(x);
  const std::vector<float> other = random.normals(static_cast<int64_t>(gate.size()));
  const auto count = static_cast<int64_t>(gate.size());
  std::vector<float> expected(gate.size());
  std::vector<float> actual(gate.size());
  truth().silu_multiply(gate.data(), other.data(), expected.data(), count);
  set().silu_multiply(gate.data(), other.data(), actual.data(), count);
  expect_relative(actual, expected, kernel_tolerance("silu_multiply"));
  truth().sigmoid_multiply(other.data(), gate.data(), expected.data(), count);
  set().sigmoid_multiply(other.data(), gate.data(), actual.data(), count);
  expect_relative(actual, expected, kernel_tolerance("sigmoid_multiply"));
}

TEST_P(ElementwiseTest, ActivationsKeepNan) {
  for (const int64_t count : {1, 5, 16, 19}) {
    const std::vector<float> ones(static_cast<size_t>(count), 1.0F);
    std::vector<float> gate = ones;
    gate.back() = nan_value;
    std::vector<float> y(ones.size());
    set().silu_multiply(gate.data(), ones.data(), y.data(), count);
    EXPECT_TRUE(std::isnan(y.back()));
    set().sigmoid_multiply(ones.data(), gate.data(), y.data(), count);
    EXPECT_TRUE(std::isnan(y.back()));
    EXPECT_EQ(std::isnan(y.front()), count == 1);
  }
}

TEST_P(ElementwiseTest, StoreHalf) {
  Random random(35);
  std::vector<float> x = {0.0F,      -0.0F,    65504.0F, 65519.9F, 65520.0F,      1e30F,         -infinity,
                          nan_value, 5.96e-8F, 2.9e-8F,  6.1e-5F,  1.0009765625F, 1.00048828125F};
  for (int i = 0; i < 200; ++i) x.push_back(random.normal(std::pow(10.0F, static_cast<float>(i % 14 - 9))));
  for (size_t count = 0; count <= x.size(); count += 7) {
    std::vector<uint16_t> expected(count + 1, 0x1234);
    std::vector<uint16_t> actual(count + 1, 0x1234);
    truth().store_half(x.data(), expected.data(), static_cast<int64_t>(count));
    set().store_half(x.data(), actual.data(), static_cast<int64_t>(count));
    for (size_t i = 0; i <= count; ++i) {
      if (i < count && std::isnan(x[i])) {
        EXPECT_TRUE(std::isnan(half_to_float(actual[i])));
      } else {
        ASSERT_EQ(actual[i], expected[i]) << x[i];
      }
    }
  }
}

TEST_P(ElementwiseTest, StoreInt8) {
  Random random(36);
  for (const int64_t count : {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 80, 130}) {
    for (int round = 0; round < 12; ++round) {
      const float size = std::pow(10.0F, static_cast<float>(round * 4 - 36));  // 1e-36 … 1e8
      std::vector<float> x = random.normals(count, size);
      for (float& value : x) value = random.between(0, 9) == 0 ? 0.0F : value;
      if (round == 3 && count > 2) x[count / 2] = nan_value;
      if (round == 5 && count > 2) x[count - 1] = -infinity;
      if (round == 7) std::fill(x.begin(), x.end(), -0.0F);
      const std::vector<int8_t> untouched(static_cast<size_t>(count) + 1, 99);
      std::vector<int8_t> expected = untouched;
      std::vector<int8_t> actual = untouched;
      float expected_scale = -1;
      float scale = -1;
      truth().store_int8(x.data(), expected.data(), &expected_scale, count);
      set().store_int8(x.data(), actual.data(), &scale, count);
      SCOPED_TRACE(testing::Message() << "count " << count << " size " << size);
      EXPECT_EQ(actual, expected);
      EXPECT_EQ(actual.back(), 99);
      if (std::isnan(expected_scale)) {
        EXPECT_TRUE(std::isnan(scale));
        continue;
      }
      EXPECT_EQ(scale, expected_scale);
      for (int64_t i = 0; i < count; ++i)
        EXPECT_LE(std::fabs(scale * static_cast<float>(actual[i]) - x[i]), 0.5001F * scale + 1e-29F);
    }
  }
  // A value half way between two steps goes to the even one.
  const std::vector<float> ties = {127, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -126.5F, 125.5F, 3.5F};
  std::vector<int8_t> rounded(ties.size());
  float scale = 0;
  set().store_int8(ties.data(), rounded.data(), &scale, static_cast<int64_t>(ties.size()));
  EXPECT_EQ(scale, 1.0F);
  EXPECT_EQ(rounded, (std::vector<int8_t>{127, 0, 2, 2, 0, -2, -126, 126, 4}));
}

}  // namespace
}  // namespace hexlm::test
