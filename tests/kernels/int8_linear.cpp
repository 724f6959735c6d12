#include <limits>

#include "kernels/int8_case.hpp"

namespace hexlm::test {
namespace {

class Int8LinearTest : public KernelTest {};
HEXLM_FOR_EVERY_SET(Int8LinearTest);

TEST_P(Int8LinearTest, EqualsTheTruthForRandomShapes) {
  Random random(4);
  for (int bits = 2; bits <= 8; ++bits) {
    for (const int64_t group : {0, 32, 64, 96, 128, 256}) {
      for (const bool symmetric : {true, false}) {
        const int64_t rows = random.between(1, 130);
        const int64_t columns = random.between(1, 400);
        const int64_t tokens = random.between(1, 40);
        SCOPED_TRACE(testing::Message() << to_string(integer_codec(bits, group, symmetric)) << " " << rows
                                        << "x" << columns << " tokens " << tokens);
        const Int8Case data(random, integer_codec(bits, group, symmetric), rows, columns, tokens);
        data.compare(data.run(set()), data.run(truth()));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Int8LinearTest, EqualsTheTruthForEveryTokenCountAndLongRows) {
  Random random(5);
  for (int64_t tokens = 1; tokens <= 14; ++tokens) {
    const int bits = tokens % 2 == 0 ? 4 : 8;
    const Int8Case data(random, integer_codec(bits, 64, tokens % 3 != 0), 33, 2500, tokens);
    data.compare(data.run(set()), data.run(truth()));
    if (HasFatalFailure()) return;
  }
}

TEST_P(Int8LinearTest, HoldsTheExtremeCodes) {
  // Every code at its end and every activation at ±127, where 16-bit intermediate sums would saturate.
  for (const int bits : {4, 8}) {
    for (const bool symmetric : {true, false}) {
      for (const int code : {0, (1 << bits) - 1}) {
        Random random(6);
        Int8Case data(random, integer_codec(bits, 64, symmetric), 16, 128, 7);
        data.packed.codes.assign(data.packed.codes.size(),
                                 static_cast<std::byte>(bits == 4 ? code * 17 : code));
        for (size_t i = 0; i < data.x.values.size(); ++i) {
          data.x.values[i] = static_cast<int8_t>(i % 256 < 128 ? 127 : -127);
        }
        for (size_t i = 0; i < data.x.sums.size(); ++i)
          data.x.sums[i] = (i * 64 % 256 < 128 ? 127 : -127) * 64;
        const std::vector<float> expected = data.run(truth());
        const std::vector<float> actual = data.run(set());
        for (size_t i = 0; i < expected.size(); ++i) {
          // Terms cancel here, so the bound is loose; one saturated sum of 16 bits is off by far more.
          ASSERT_TRUE(close(actual[i], expected[i], 1e-5, std::fabs(expected[i]) + 1)) << "bits " << bits;
        }
      }
    }
  }
}

TEST_P(Int8LinearTest, DoesNotDependOnHowTheWorkIsSplit) {
  Random random(7);
  const Int8Case data(random, integer_codec(4, 64, true), 100, 1500, 23);
  const std::vector<float> whole = data.run(set());
  std::vector<float> parts = data.run(set(), 0, 3);
  const std::vector<float> rest = data.run(set(), 3, data.packed.tiles());
  const int64_t stride = data.matrix.rows + 3;
  for (int64_t token = 0; token < data.tokens; ++token) {
    for (int64_t row = 48; row < stride; ++row) parts[token * stride + row] = rest[token * stride + row];
  }
  EXPECT_EQ(parts, whole);
  for (int64_t token = 0; token < data.tokens; ++token) {
    Int8LinearArguments one{.weight = &data.packed.matrix, .x = data.x.view};
    const int64_t blocks = data.x.view.padded_columns / data.x.view.block;
    one.x.rows = 1;
    one.x.values += token * data.x.view.padded_columns;
    one.x.scales += token * blocks;
    one.x.sums += token * blocks;
    one.bias = data.bias.empty() ? nullptr : data.bias.data();
    std::vector<float> y(static_cast<size_t>(data.matrix.rows));
    one.y = y.data();
    one.tile_end = data.packed.tiles();
    set().int8_linear(one);
    const std::vector<float> expected(whole.begin() + token * stride, whole.begin() + token * stride + 100);
    EXPECT_EQ(y, expected) << "token " << token;
  }
}

TEST_P(Int8LinearTest, PassesNanOnToItsTokenAlone) {
  Random random(8);
  Int8Case data(random, integer_codec(4, 64, false), 40, 200, 9);
  data.x.scales[4 * data.x.view.padded_columns / 64 + 1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y = data.run(set());
  for (int64_t token = 0; token < 9; ++token) {
    for (int64_t row = 0; row < 40; ++row) EXPECT_EQ(std::isnan(y[token * 43 + row]), token == 4);
  }
}

TEST(Int8Linear, VectorSetsMakeTheSameFloats) {
  std::vector<const KernelSet*> sets;
  for (const KernelSet* set : kernel_sets()) {
    if (set != &reference_kernels() && set->supported(cpu_features())) sets.push_back(set);
  }
  if (sets.size() < 2) GTEST_SKIP() << "NOT TESTED: this processor runs fewer than two vector sets";
  Random random(9);
  for (const int bits : {4, 8}) {
    for (const bool symmetric : {true, false}) {
      const Int8Case data(random, integer_codec(bits, 128, symmetric), 70, 1300, 11);
      for (size_t i = 1; i < sets.size(); ++i) EXPECT_EQ(data.run(*sets[i]), data.run(*sets[0]));
    }
  }
}

}  // namespace
}  // namespace hexlm::test
