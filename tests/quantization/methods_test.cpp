#include <algorithm>
#include <array>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/half.hpp"
#include "formats/two_level.hpp"
#include "quantization/awq.hpp"
#include "quantization/encode.hpp"
#include "quantization/grid_search.hpp"
#include "quantization/matrix_solver.hpp"
#include "quantization/moments.hpp"
#include "stored_weight.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

constexpr int64_t test_rows = 40;
constexpr int64_t test_columns = 96;

double error_of(Method method, const Codec& codec, const std::vector<float>& weights) {
  EncodedRows encoded;
  const auto fault = encode_rows(reinterpret_cast<const std::byte*>(weights.data()), DType::f32, test_rows,
                                 test_columns, codec, method, encoded);
  EXPECT_FALSE(fault);
  return encoded.squared_error / encoded.squared_norm;
}

TEST(Methods, SearchBeatsRoundingToNearest) {
  const std::vector<float> weights = random_weights(test_rows * test_columns, 1);
  for (const char* spec : {"w2g32", "w3g32", "w4g32", "w4g32a", "w4", "w5g16s6", "w4g32s6", "w3g16s4"}) {
    const Codec codec = *parse_codec(spec);
    const double rounded = error_of(Method::rtn, codec, weights);
    EXPECT_LT(error_of(Method::mse, codec, weights), 0.95 * rounded) << spec;
    EXPECT_GT(rounded, 0) << spec;
  }
}

TEST(Methods, SplittingKeepsSmallErrorsSmall) {
  // Heavy tails are what its norm of 0.7 is for: more of the weights must come out nearly exact.
  const std::vector<float> weights = random_weights(test_rows * test_columns, 2);
  const Codec codec = *parse_codec("w4g32a");
  const auto mean_power = [&](Method method) {
    EncodedRows encoded;
    EXPECT_FALSE(encode_rows(reinterpret_cast<const std::byte*>(weights.data()), DType::f32, test_rows,
                             test_columns, codec, method, encoded));
    const std::vector<float> decoded =
        decode_rows(view_of(encoded, test_rows, test_columns, codec), 0, test_rows);
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) sum += std::pow(std::fabs(weights[i] - decoded[i]), 0.7);
    return sum;
  };
  EXPECT_LT(mean_power(Method::hqq), mean_power(Method::rtn));
}

TEST(Methods, TwoLevelScalesAreTheProductsThatReadersExpand) {
  const std::vector<float> weights = random_weights(test_rows * test_columns, 3);
  const Codec codec = *parse_codec("w4g32s6");
  EncodedRows encoded;
  ASSERT_FALSE(encode_rows(reinterpret_cast<const std::byte*>(weights.data()), DType::f32, test_rows,
                           test_columns, codec, Method::mse, encoded));
  ASSERT_EQ(encoded.scales.size(), static_cast<size_t>(test_rows));
  ASSERT_EQ(encoded.group_scales.size(), static_cast<size_t>(test_rows * 3));  // 3 groups of 6 bits: 18 bits
  const std::vector<uint16_t> scales = expand_scales(codec, test_rows, test_columns, encoded.group_scales,
                                                     std::as_bytes(std::span(encoded.scales)));
  std::vector<uint8_t> codes(3);
  unpack_codes(encoded.group_scales.data() + 3 * 7, 6, codes);
  for (size_t g = 0; g < 3; ++g) {
    const float product = half_to_float(encoded.scales[7]) * static_cast<float>(codes[g] - 32);
    EXPECT_EQ(scales[3 * 7 + g], float_to_half(product)) << g;
  }
  // What readers decode is what the error was measured on.
  EncodedRows plain = encoded;
  plain.scales = scales;
  const std::vector<float> decoded =
      decode_rows(view_of(plain, test_rows, test_columns, codec.expanded()), 0, test_rows);
  double error = 0;
  for (size_t i = 0; i < weights.size(); ++i)
    error += std::pow(static_cast<double>(weights[i]) - decoded[i], 2);
  EXPECT_NEAR(error, encoded.squared_error, 1e-9);
}

TEST(Methods, NothingIsLeftFromAnotherCodec) {
  const std::vector<float> weights = random_weights(test_rows * test_columns, 17);
  EncodedRows encoded;
  for (const char* spec : {"w4g32s6", "w4g32", "w4g32s6", "bf16", "w4g32s6", "w4g32a"}) {
    const Codec codec = *parse_codec(spec);
    ASSERT_FALSE(encode_rows(reinterpret_cast<const std::byte*>(weights.data()), DType::f32, test_rows,
                             test_columns, codec, Method::rtn, encoded));
    EXPECT_EQ(encoded.group_scales.empty(), !codec.is_two_level()) << spec;
    EXPECT_EQ(encoded.offsets.empty(), codec.symmetric) << spec;
  }
}

TEST(Methods, ReportsWhatCannotBeStored) {
  std::vector<float> weights = random_weights(test_rows * test_columns, 4);
  EncodedRows encoded;
  const auto encode = [&] {
    return encode_rows(reinterpret_cast<const std::byte*>(weights.data()), DType::f32, test_rows,
                       test_columns, *parse_codec("w4g32s6"), Method::mse, encoded);
  };
  weights[2 * test_columns + 5] = 1e9F;
  auto fault = encode();
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, EncodeFault::Kind::scale_overflow);
  EXPECT_EQ(fault->row, 2);
  weights[test_columns + 7] = NAN;
  fault = encode();
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, EncodeFault::Kind::not_finite);
  EXPECT_EQ(fault->column, 7);
}

/// Inputs whose columns are strongly correlated, as hidden states are.
std::vector<float> correlated_inputs(int64_t tokens, uint32_t seed) {
  std::vector<float> x = random_weights(static_cast<size_t>(tokens * test_columns), seed, 1);
  for (int64_t t = 0; t < tokens; ++t) {
    float* row = x.data() + t * test_columns;
    for (int64_t i = 1; i < test_columns; ++i) row[i] = 0.4F * row[i] + 0.9F * row[i - 1];
  }
  return x;
}

InputMoments moments_of(const std::vector<float>& x, int threads = 1) {
  ThreadPool pool(threads);
  MomentSums sums(test_columns, false);
  sums.add({static_cast<int64_t>(x.size()) / test_columns, x.data()}, pool);
  auto moments = std::move(sums).finish("layers.0.test");
  EXPECT_TRUE(moments) << moments.error().message;
  return *std::move(moments);
}

TEST(Moments, AreMeansOverTokensWhateverTheThreads) {
  const std::vector<float> x = correlated_inputs(300, 5);
  const InputMoments moments = moments_of(x);
  double expected = 0;
  for (int64_t t = 0; t < 300; ++t) {
    expected += static_cast<double>(x[static_cast<size_t>(t * test_columns + 3)]) *
                x[static_cast<size_t>(t * test_columns + 60)];
  }
  EXPECT_NEAR(moments.gram[3 * test_columns + 60], expected / 300, 1e-4);
  EXPECT_EQ(moments.gram[3 * test_columns + 60], moments.gram[60 * test_columns + 3]);
  EXPECT_EQ(moments.gram, moments_of(x, 3).gram);
}

TEST(Moments, RefuseWhatNoHessianCanBeMadeOf) {
  ThreadPool pool(1);
  std::vector<float> x(static_cast<size_t>(2 * test_columns), 0.0F);
  MomentSums zero(test_columns, false);
  zero.add({2, x.data()}, pool);
  EXPECT_THAT(std::move(zero).finish("layers.4.q_proj").error().message,
              HasSubstr("layers.4.q_proj: its inputs are all zero"));
  x[5] = NAN;
  MomentSums broken(test_columns, false);
  broken.add({2, x.data()}, pool);
  EXPECT_THAT(std::move(broken).finish("a").error().message, HasSubstr("not finite"));
  EXPECT_THAT(MomentSums(test_columns, false).finish("a").error().message,
              HasSubstr("no calibration tokens"));
}

SolvedMatrix solve(const InputMoments& moments, const std::vector<float>& weights, const Codec& codec,
                   int sweeps, int threads = 1) {
  ThreadPool pool(threads);
  const auto solver = MatrixSolver::create(moments, {0.01, sweeps}, "layers.0.test");
  EXPECT_TRUE(solver) << solver.error().message;
  return solver->solve(weights, weights, codec, pool);
}

TEST(MatrixSolver, ErrorFeedbackAndDescentEachLowerTheOutputError) {
  const std::vector<float> weights = random_weights(test_rows * test_columns, 6);
  const InputMoments moments = moments_of(correlated_inputs(600, 7));
  ThreadPool pool(1);
  for (const char* spec : {"w3g32", "w4g32a", "w4g32s6"}) {
    const Codec codec = *parse_codec(spec);
    const double rounded = clip_matrix(weights, moments, codec, true, pool).output_error;
    const double fed_back = solve(moments, weights, codec, 0).output_error;
    const double descended = solve(moments, weights, codec, 4).output_error;
    EXPECT_LT(fed_back, 0.9 * rounded) << spec;
    EXPECT_LT(descended, 0.99 * fed_back) << spec;
  }
}

TEST(MatrixSolver, GivesTheSameBitsForAnyNumberOfThreads) {
  const std::vector<float> weights = random_weights(test_rows * test_columns, 8);
  const InputMoments moments = moments_of(correlated_inputs(200, 9));
  const SolvedMatrix one = solve(moments, weights, *parse_codec("w4g32"), 2, 1);
  const SolvedMatrix three = solve(moments, weights, *parse_codec("w4g32"), 2, 3);
  EXPECT_EQ(one.encoded.data, three.encoded.data);
  EXPECT_EQ(one.encoded.scales, three.encoded.scales);
  EXPECT_EQ(one.output_error, three.output_error);
}

TEST(MatrixSolver, DecodedValuesAreThoseOfTheStoredCodes) {
  const std::vector<float> weights = random_weights(test_rows * test_columns, 10);
  const Codec codec = *parse_codec("w4g32a");
  const SolvedMatrix solved = solve(moments_of(correlated_inputs(200, 11)), weights, codec, 3);
  EXPECT_EQ(decode_rows(view_of(solved.encoded, test_rows, test_columns, codec), 0, test_rows),
            solved.decoded);
}

TEST(MatrixSolver, RaisesTheDampingUntilASingularHessianFactors) {
  // Rank one, and columns that are never used.
  std::vector<float> x(static_cast<size_t>(4 * test_columns), 0.0F);
  for (int64_t i = 0; i < 10; ++i) x[static_cast<size_t>(i)] = 1;
  const InputMoments moments = moments_of(x);
  const auto solver = MatrixSolver::create(moments, {0, 0}, "layers.0.test");
  // No damping at all can't be raised tenfold; the error names the layer.
  ASSERT_FALSE(solver);
  EXPECT_THAT(solver.error().message, HasSubstr("layers.0.test: the Hessian of its 96 inputs is singular"));
  const std::vector<float> weights = random_weights(test_rows * test_columns, 12);
  const SolvedMatrix solved = solve(moments, weights, *parse_codec("w8g32"), 2);
  // Unused columns keep their weights.
  for (size_t i = 0; i < weights.size(); ++i) {
    if (i % test_columns < 10) continue;
    EXPECT_NEAR(solved.decoded[i], weights[i], 0.01F + 0.02F * std::fabs(weights[i]));
  }
}

TEST(Drift, IsCorrectedInTheDirectionOfTheFloatInputs) {
  // x = 0.8 f: the best weights for x are W / 0.8.
  const std::vector<float> f = correlated_inputs(500, 13);
  std::vector<float> x = f;
  for (float& value : x) value *= 0.8F;
  ThreadPool pool(2);
  MomentSums sums(test_columns, true);
  sums.add({500, x.data(), f.data()}, pool);
  auto moments = std::move(sums).finish("a");
  ASSERT_TRUE(moments);
  const std::vector<float> weights = random_weights(test_rows * test_columns, 14);
  std::vector<float> corrected = weights;
  ASSERT_TRUE(correct_drift(*moments, 1e-6, corrected));
  for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(corrected[i], weights[i] / 0.8F, 2e-3F);
}

TEST(Drift, TakesOverWhatTheResidualStreamLacks) {
  // The stream lacks D x: the best weights are W + D.
  const std::vector<float> x = correlated_inputs(500, 20);
  const std::vector<float> lacking = random_weights(test_rows * test_columns, 21);
  std::vector<float> lag(static_cast<size_t>(500 * test_rows));
  for (int64_t t = 0; t < 500; ++t) {
    for (int64_t o = 0; o < test_rows; ++o) {
      float sum = 0;
      for (int64_t c = 0; c < test_columns; ++c) {
        sum +=
            lacking[static_cast<size_t>(o * test_columns + c)] * x[static_cast<size_t>(t * test_columns + c)];
      }
      lag[static_cast<size_t>(t * test_rows + o)] = sum;
    }
  }
  std::vector<float> factors(500, 1.0F);
  for (size_t t = 0; t < factors.size(); ++t) factors[t] = t % 3 == 0 ? 2.0F : 0.5F;
  ThreadPool pool(2);
  MomentSums sums(test_columns, true, test_rows);
  sums.add({500, x.data(), x.data(), lag.data(), factors.data()}, pool);
  auto moments = std::move(sums).finish("a");
  ASSERT_TRUE(moments);
  const std::vector<float> weights = random_weights(test_rows * test_columns, 22);
  std::vector<float> corrected = weights;
  ASSERT_TRUE(correct_drift(*moments, 1e-7, corrected));
  for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(corrected[i], weights[i] + lacking[i], 2e-3F);
}

TEST(Moments, TokensCountByTheSquareOfTheirFactors) {
  std::vector<float> x(static_cast<size_t>(2 * test_columns), 0.0F);
  x[3] = 2;
  x[test_columns + 3] = 5;
  const std::vector<float> factors = {3, 0.5F};
  ThreadPool pool(1);
  MomentSums sums(test_columns, false);
  sums.add({2, x.data(), nullptr, nullptr, factors.data()}, pool);
  const auto moments = std::move(sums).finish("a");
  ASSERT_TRUE(moments);
  EXPECT_FLOAT_EQ(static_cast<float>(moments->gram[3 * test_columns + 3]), (36 + 6.25F) / 2);
  EXPECT_EQ(moments->half_max[0], 5);  // ranges are those of the activations themselves
  EXPECT_FLOAT_EQ(static_cast<float>(moments->mean_abs[3]), 3.5F);
}

TEST(MatrixSolver, TakesAShorterLastGroup) {
  const std::vector<float> weights = random_weights(test_rows * test_columns, 23);
  for (const char* spec : {"w4g64", "w4g64a", "w4g64s6"}) {
    const Codec codec = *parse_codec(spec);
    ASSERT_NE(test_columns % codec.group, 0);
    const InputMoments moments = moments_of(correlated_inputs(300, 24));
    const SolvedMatrix solved = solve(moments, weights, codec, 4);
    ThreadPool pool(1);
    EXPECT_LT(solved.output_error, 0.8 * clip_matrix(weights, moments, codec, true, pool).output_error)
        << spec;
    EXPECT_GT(solved.output_error, 0) << spec;
    if (codec.is_two_level()) continue;  // decode_rows reads scales as packages hold them, expanded
    EXPECT_EQ(decode_rows(view_of(solved.encoded, test_rows, test_columns, codec), 0, test_rows),
              solved.decoded)
        << spec;
  }
}

TEST(Awq, ScalesUpTheColumnsThatCarryTheActivations) {
  std::vector<float> x = random_weights(static_cast<size_t>(400 * test_columns), 15, 0.1F);
  for (int64_t t = 0; t < 400; ++t) x[static_cast<size_t>(t * test_columns + 20)] *= 60;
  const InputMoments moments = moments_of(x);
  const std::vector<float> weights = random_weights(test_rows * test_columns, 16);
  ThreadPool pool(1);
  const StackedRows stacked{weights, *parse_codec("w3g32")};
  const std::vector<float> scales = search_scales(std::array{stacked}, moments, pool);
  EXPECT_GT(scales[20], 1.5F * scales[21]);
  InputMoments scaled = moments;
  scale_moments(scaled, scales);
  std::vector<float> multiplied = weights;
  for (size_t i = 0; i < multiplied.size(); ++i) multiplied[i] *= scales[i % test_columns];
  EXPECT_LT(clip_matrix(multiplied, scaled, stacked.codec, true, pool).output_error,
            0.8 * clip_matrix(weights, moments, stacked.codec, true, pool).output_error);
}

}  // namespace
}  // namespace hexlm
