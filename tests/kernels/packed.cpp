#include "kernels/int8_case.hpp"

namespace hexlm::test {
namespace {

class PackTest : public KernelTest {};
HEXLM_FOR_EVERY_SET(PackTest);

TEST_P(PackTest, EverySetMakesTheSameBytes) {
  Random random(1);
  for (int bits = 2; bits <= 8; ++bits) {
    for (const int64_t group : {0, 32, 64, 96, 128}) {
      for (const bool symmetric : {true, false}) {
        const int64_t rows = random.between(1, 130);
        const int64_t columns = random.between(1, 400);
        SCOPED_TRACE(testing::Message()
                     << to_string(integer_codec(bits, group, symmetric)) << " " << rows << "x" << columns);
        const StoredMatrix matrix =
            random_matrix(random, integer_codec(bits, group, symmetric), rows, columns);
        Packed expected(matrix.view());
        Packed actual(matrix.view());
        truth().pack(matrix.view(), expected.matrix, 0, expected.tiles());
        const int64_t middle = actual.tiles() / 2;
        set().pack(matrix.view(), actual.matrix, middle, actual.tiles());
        set().pack(matrix.view(), actual.matrix, 0, middle);
        EXPECT_EQ(actual.codes, expected.codes);
        EXPECT_EQ(actual.scales, expected.scales);
        EXPECT_EQ(actual.offsets, expected.offsets);
      }
    }
  }
}

TEST(DescribePacked, GivesTheFormOfEveryCodec) {
  PackedMatrix packed;
  MatrixView view{.codec = integer_codec(3, 64, true), .rows = 17, .columns = 130};
  ASSERT_TRUE(describe_packed(view, packed));
  EXPECT_EQ(packed.bits, 4);
  EXPECT_EQ(packed.zero_code, 4);
  EXPECT_EQ(packed.block, 64);
  EXPECT_EQ(packed.padded_columns, 192);
  EXPECT_EQ(packed.groups, 3);
  EXPECT_EQ(packed_code_bytes(packed), 32U * 192 / 2);
  EXPECT_EQ(packed_scale_bytes(packed), 32U * 3 * 2);

  view.codec = integer_codec(5, 96, false);
  ASSERT_TRUE(describe_packed(view, packed));
  EXPECT_EQ(packed.bits, 8);
  EXPECT_EQ(packed.zero_code, 0);
  EXPECT_EQ(packed.block, 32);
  EXPECT_EQ(packed.padded_columns, 160);

  view.codec = integer_codec(8, 0, true);
  ASSERT_TRUE(describe_packed(view, packed));
  EXPECT_EQ(packed.zero_code, 128);
  EXPECT_EQ(packed.block, 64);
  EXPECT_EQ(packed.groups, 1);
}

TEST(DescribePacked, RefusesWhatHasNoInt8Form) {
  PackedMatrix packed;
  MatrixView view{.codec = integer_codec(4, 48, true), .rows = 16, .columns = 96};
  EXPECT_FALSE(describe_packed(view, packed));
  view.codec = integer_codec(4, 16, true);
  EXPECT_FALSE(describe_packed(view, packed));
  view.codec = Codec{.kind = Codec::Kind::f16, .bits = 16, .group = 0, .symmetric = true};
  EXPECT_FALSE(describe_packed(view, packed));
}

TEST(Pack, LaysFourColumnsOfSixteenRowsTogether) {
  // W8, one group: the code at row r, column c is (r · 8 + c), so its place can be computed by hand.
  StoredMatrix matrix{.codec = integer_codec(8, 0, true),
                      .rows = 16,
                      .columns = 8,
                      .data = UnalignedBytes(128),
                      .scales = UnalignedBytes(32),
                      .offsets = {}};
  for (int i = 0; i < 128; ++i) matrix.data.data()[i] = static_cast<std::byte>(i);
  Packed packed(matrix.view());
  reference_kernels().pack(matrix.view(), packed.matrix, 0, 1);
  EXPECT_EQ(packed.codes[0], std::byte{0});          // row 0, column 0
  EXPECT_EQ(packed.codes[3], std::byte{3});          // row 0, column 3
  EXPECT_EQ(packed.codes[4], std::byte{8});          // row 1, column 0
  EXPECT_EQ(packed.codes[64], std::byte{4});         // row 0, column 4
  EXPECT_EQ(packed.codes[64 + 61], std::byte{125});  // row 15, column 5
  EXPECT_EQ(packed.codes[128], std::byte{128});      // padding: the code of zero
}

}  // namespace
}  // namespace hexlm::test
