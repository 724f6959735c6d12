#include <limits>

#include "kernels/kernel_test.hpp"

namespace hexlm::test {
namespace {

std::vector<Codec> codecs() {
  std::vector<Codec> all = {{.kind = Codec::Kind::f32, .bits = 32, .group = 0, .symmetric = true},
                            {.kind = Codec::Kind::f16, .bits = 16, .group = 0, .symmetric = true},
                            {.kind = Codec::Kind::bf16, .bits = 16, .group = 0, .symmetric = true}};
  for (int bits = 2; bits <= 8; ++bits) {
    // 20 divides no vector and begins within bytes.
    for (const int64_t group : {0, 16, 20, 32, 64, 128}) {
      for (const bool symmetric : {true, false}) all.push_back(integer_codec(bits, group, symmetric));
    }
  }
  return all;
}

class DequantizeRowTest : public KernelTest {};
HEXLM_FOR_EVERY_SET(DequantizeRowTest);

TEST_P(DequantizeRowTest, EverySetMakesTheSameFloats) {
  Random random(20);
  for (const Codec& codec : codecs()) {
    const int64_t rows = random.between(1, 20);
    const int64_t columns = random.between(1, 300);
    SCOPED_TRACE(testing::Message() << to_string(codec) << " " << rows << "x" << columns);
    const StoredMatrix matrix = random_matrix(random, codec, rows, columns);
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<float> expected(static_cast<size_t>(columns));
      std::vector<float> actual(static_cast<size_t>(columns));
      truth().dequantize_row(matrix.view(), row, expected.data());
      set().dequantize_row(matrix.view(), row, actual.data());
      ASSERT_EQ(actual, expected) << "row " << row;
    }
  }
}

TEST(DequantizeRow, FollowsTheCodecsFormula) {
  // Two rows of w4g2-like data by hand: codes 1, 15 | 8, 0 with scale 0.5, then asymmetric with offset 0.25.
  StoredMatrix matrix{.codec = integer_codec(4, 16, true),
                      .rows = 1,
                      .columns = 4,
                      .data = UnalignedBytes(2),
                      .scales = UnalignedBytes(2),
                      .offsets = {}};
  matrix.data.data()[0] = std::byte{0xF1};
  matrix.data.data()[1] = std::byte{0x08};
  put_u16(matrix.scales, 0, float_to_half(0.5F));
  std::vector<float> row(4);
  reference_kernels().dequantize_row(matrix.view(), 0, row.data());
  EXPECT_EQ(row, (std::vector<float>{-3.5F, 3.5F, 0.0F, -4.0F}));
  matrix.codec.symmetric = false;
  matrix.offsets = UnalignedBytes(2);
  put_u16(matrix.offsets, 0, float_to_half(0.25F));
  reference_kernels().dequantize_row(matrix.view(), 0, row.data());
  EXPECT_EQ(row, (std::vector<float>{0.75F, 7.75F, 4.25F, 0.25F}));
}

struct Product {
  StoredMatrix matrix;
  int64_t tokens;
  int64_t x_stride;
  std::vector<float> x;
  std::vector<float> bias;

  Product(Random& random, const Codec& codec, int64_t rows, int64_t columns, int64_t token_count)
      : matrix(random_matrix(random, codec, rows, columns)),
        tokens(token_count),
        x_stride(columns + random.between(0, 3)),
        x(random.normals((tokens - 1) * x_stride + columns)) {
    if (random.between(0, 1) == 0) bias = random.normals(rows);
  }

  int64_t y_stride() const { return matrix.rows + 2; }

  void run(const KernelSet& set, int64_t row_begin, int64_t row_end, std::vector<float>& y) const {
    std::vector<float> scratch(static_cast<size_t>(float_linear_scratch(matrix.columns)));
    set.float_linear({.x = x.data(),
                      .x_stride = x_stride,
                      .tokens = tokens,
                      .weight = matrix.view(),
                      .bias = bias.empty() ? nullptr : bias.data(),
                      .y = y.data(),
                      .y_stride = y_stride(),
                      .row_begin = row_begin,
                      .row_end = row_end,
                      .scratch = scratch.data()});
  }
  std::vector<float> run(const KernelSet& set) const {
    std::vector<float> y(static_cast<size_t>(tokens * y_stride()), -77.0F);
    run(set, 0, matrix.rows, y);
    return y;
  }

  void compare(const std::vector<float>& actual, const std::vector<float>& expected) const {
    std::vector<float> weights(static_cast<size_t>(matrix.columns));
    for (int64_t row = 0; row < matrix.rows; ++row) {
      reference_kernels().dequantize_row(matrix.view(), row, weights.data());
      for (int64_t token = 0; token < tokens; ++token) {
        double magnitude = bias.empty() ? 0 : std::fabs(bias[row]);
        for (int64_t c = 0; c < matrix.columns; ++c) {
          magnitude += std::fabs(static_cast<double>(weights[c]) * x[token * x_stride + c]);
        }
        const int64_t at = token * y_stride() + row;
        ASSERT_TRUE(close(actual[at], expected[at], kernel_tolerance("float_linear"), magnitude))
            << "token " << token << " row " << row;
      }
    }
    for (int64_t token = 0; token < tokens; ++token) {
      ASSERT_EQ(actual[token * y_stride() + matrix.rows], -77.0F) << "written past the rows";
    }
  }
};

class FloatLinearTest : public KernelTest {};
HEXLM_FOR_EVERY_SET(FloatLinearTest);

TEST_P(FloatLinearTest, EqualsTheTruthForRandomShapes) {
  Random random(21);
  for (const Codec& codec : codecs()) {
    const int64_t rows = random.between(1, 130);
    const int64_t columns = random.between(1, 300);
    const int64_t tokens = random.between(1, 40);
    SCOPED_TRACE(testing::Message() << to_string(codec) << " " << rows << "x" << columns << " tokens "
                                    << tokens);
    const Product product(random, codec, rows, columns, tokens);
    product.compare(product.run(set()), product.run(truth()));
    if (HasFatalFailure()) return;
  }
}

TEST_P(FloatLinearTest, EqualsTheTruthForLongRowsAndEveryTokenCount) {
  Random random(22);
  const std::vector<Codec> all = codecs();
  for (int64_t tokens = 1; tokens <= 14; ++tokens) {
    const Product product(random, all[(tokens * 7) % all.size()], 13, 2 * 1024 + tokens * 13, tokens);
    product.compare(product.run(set()), product.run(truth()));
    if (HasFatalFailure()) return;
  }
}

TEST_P(FloatLinearTest, DoesNotDependOnHowTheWorkIsSplit) {
  Random random(23);
  for (const Codec& codec : {codecs()[0], codecs()[1], integer_codec(4, 64, true)}) {
    const Product product(random, codec, 75, 1100, 17);
    const std::vector<float> whole = product.run(set());
    std::vector<float> parts(whole.size(), -77.0F);
    product.run(set(), 38, 75, parts);
    product.run(set(), 0, 5, parts);
    product.run(set(), 5, 38, parts);
    EXPECT_EQ(parts, whole);
    Product one = product;
    one.tokens = 1;
    one.x.assign(product.x.begin() + 9 * product.x_stride, product.x.begin() + 9 * product.x_stride + 1100);
    const std::vector<float> alone = one.run(set());
    for (int64_t row = 0; row < 75; ++row) ASSERT_EQ(alone[row], whole[9 * product.y_stride() + row]);
  }
}

TEST_P(FloatLinearTest, PassesExtremesOn) {
  Random random(24);
  Product product(random, codecs()[0], 9, 40, 7);
  product.x[2 * product.x_stride + 11] = std::numeric_limits<float>::quiet_NaN();
  for (int64_t c = 0; c < 40; ++c) product.x[3 * product.x_stride + c] = 1e-42F;
  for (int64_t c = 0; c < 40; ++c) product.x[4 * product.x_stride + c] = 1e30F;
  for (int64_t c = 0; c < 40; ++c) product.x[5 * product.x_stride + c] = 0.0F;
  const std::vector<float> y = product.run(set());
  product.compare(y, product.run(truth()));
  for (int64_t row = 0; row < 9; ++row) {
    EXPECT_TRUE(std::isnan(y[2 * product.y_stride() + row]));
    EXPECT_EQ(y[5 * product.y_stride() + row], product.bias.empty() ? 0.0F : product.bias[row]);
  }
}

}  // namespace
}  // namespace hexlm::test
