#include <algorithm>
#include <limits>

#include "kernels/int8_case.hpp"

namespace hexlm::test {
namespace {

class QuantizeRowsTest : public KernelTest {};
HEXLM_FOR_EVERY_SET(QuantizeRowsTest);

TEST_P(QuantizeRowsTest, EverySetMakesTheSameValues) {
  Random random(2);
  for (int round = 0; round < 60; ++round) {
    const int64_t rows = random.between(1, 9);
    const int64_t columns = random.between(1, 300);
    const int64_t stride = columns + random.between(0, 5);
    const int64_t block = random.between(0, 1) == 0 ? 32 : 64;
    const float deviation = std::pow(10.0F, static_cast<float>(random.between(-41, 30)));
    const std::vector<float> x = random.normals((rows - 1) * stride + columns, deviation);
    Rows expected(rows, columns, block);
    Rows actual(rows, columns, block);
    truth().quantize_rows(x.data(), stride, columns, expected.view, 0, rows);
    set().quantize_rows(x.data(), stride, columns, actual.view, 0, rows / 2);
    set().quantize_rows(x.data(), stride, columns, actual.view, rows / 2, rows);
    EXPECT_EQ(actual.values, expected.values);
    EXPECT_EQ(actual.scales, expected.scales);
    EXPECT_EQ(actual.sums, expected.sums);
    EXPECT_EQ(*std::min_element(actual.values.begin(), actual.values.end()) < -127, false);
  }
}

TEST_P(QuantizeRowsTest, StaysWithinHalfAStep) {
  Random random(3);
  const std::vector<float> x = random.normals(256);
  Rows rows(1, 256, 64);
  set().quantize_rows(x.data(), 256, 256, rows.view, 0, 1);
  for (int64_t i = 0; i < 256; ++i) {
    const float step = rows.scales[i / 64];
    EXPECT_NEAR(step * static_cast<float>(rows.values[i]), x[i], step * 0.5001F);
  }
}

TEST_P(QuantizeRowsTest, TreatsExtremesAlike) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x(5 * 64, 0.0F);
  x[64] = nan;
  x[2 * 64 + 5] = -infinity;
  x[3 * 64 + 7] = 1e-42F;
  x[4 * 64 + 9] = -std::numeric_limits<float>::max();
  Rows rows(1, 5 * 64, 64);
  set().quantize_rows(x.data(), 5 * 64, 5 * 64, rows.view, 0, 1);
  EXPECT_EQ(rows.scales[0], 0.0F);
  EXPECT_TRUE(std::isnan(rows.scales[1]));
  EXPECT_TRUE(std::isnan(rows.scales[2]));
  EXPECT_EQ(rows.scales[3], 0.0F);
  EXPECT_EQ(rows.values[4 * 64 + 9], -127);
  EXPECT_EQ(std::count(rows.values.begin(), rows.values.end(), int8_t{0}), 5 * 64 - 1);
  EXPECT_EQ(rows.sums, (std::vector<int32_t>{0, 0, 0, 0, -127}));
}

}  // namespace
}  // namespace hexlm::test
