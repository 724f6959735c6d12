#include "quantization/hadamard.hpp"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hexlm {
namespace {

/// The rows of R.
std::vector<std::vector<double>> rows_of(const HadamardRotation& rotation) {
  const auto n = static_cast<size_t>(rotation.size());
  std::vector<std::vector<double>> rows;
  for (size_t i = 0; i < n; ++i) {
    std::vector<double>& row = rows.emplace_back(n, 0.0);
    row[i] = 1;
    rotation.apply(row.data());
  }
  return rows;
}

TEST(Hadamard, IsOrthogonalWithElementsOfOneSize) {
  // Powers of two, Paley I (12, 20, 60), Paley II (28, 36), products with powers.
  for (const int64_t n : {1, 2, 4, 12, 16, 20, 24, 28, 36, 40, 60, 72, 96, 112}) {
    const auto rotation = HadamardRotation::create(n, 5);
    ASSERT_TRUE(rotation) << n << ": " << rotation.error().message;
    const auto rows = rows_of(*rotation);
    const double size = 1 / std::sqrt(static_cast<double>(n));
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double dot = 0;
        for (size_t c = 0; c < rows.size(); ++c) dot += rows[i][c] * rows[j][c];
        ASSERT_NEAR(dot, i == j ? 1 : 0, 1e-12) << n << ": rows " << i << ", " << j;
      }
      for (const double element : rows[i]) ASSERT_NEAR(std::fabs(element), size, 1e-12) << n;
    }
  }
}

TEST(Hadamard, KnowsTheHiddenSizesOfTheModels) {
  for (const int64_t n : {576, 640, 896, 960, 1024, 1152, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 8192}) {
    EXPECT_TRUE(HadamardRotation::create(n, 0)) << n;
  }
  for (const int64_t n : {0, 3, 6, 7, 92, 1090}) {
    const auto refused = HadamardRotation::create(n, 0);
    ASSERT_FALSE(refused) << n;
    EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
    EXPECT_THAT(refused.error().message, testing::HasSubstr("order " + std::to_string(n)));
  }
}

TEST(Hadamard, SignsDependOnTheSeed) {
  const auto first = HadamardRotation::create(64, 1);
  const auto second = HadamardRotation::create(64, 2);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(rows_of(*first), rows_of(*HadamardRotation::create(64, 1)));
  EXPECT_NE(rows_of(*first), rows_of(*second));
}

}  // namespace
}  // namespace hexlm
