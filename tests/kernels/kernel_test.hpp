#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "kernels/kernels.hpp"
#include "kernels/tolerance.hpp"

namespace hexlm::test {

/// One differential test for every set that is compiled in. A set that this processor lacks is skipped aloud.
class KernelTest : public testing::TestWithParam<const KernelSet*> {
 protected:
  void SetUp() override {
    if (!set().supported(cpu_features())) {
      GTEST_SKIP() << "NOT TESTED: kernel set " << set().name << " needs instructions this processor lacks ("
                   << describe(cpu_features()) << ")";
    }
  }
  static const KernelSet& set() { return *GetParam(); }
  static const KernelSet& truth() { return reference_kernels(); }
};

inline std::string set_name(const testing::TestParamInfo<const KernelSet*>& info) { return info.param->name; }

/// Deterministic data for one case.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  float normal(float deviation = 1.0F) {
    // Box and Muller: the standard library's normal distribution differs between libraries.
    const double u = (static_cast<double>(engine_() >> 11) + 1) * 0x1p-53;
    const double v = static_cast<double>(engine_() >> 11) * 0x1p-53;
    return deviation * static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
  }
  std::vector<float> normals(int64_t count, float deviation = 1.0F) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(deviation);
    return values;
  }
  uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

/// Bytes that begin one past an aligned address and end with the allocation, so that aligned loads trap and
/// reads past the end are found by the address sanitizer.
class UnalignedBytes {
 public:
  UnalignedBytes() : bytes_(1) {}
  explicit UnalignedBytes(size_t size) : bytes_(size + 1) {}
  std::byte* data() { return bytes_.data() + 1; }
  const std::byte* data() const { return bytes_.data() + 1; }
  size_t size() const { return bytes_.size() - 1; }

 private:
  std::vector<std::byte> bytes_;
};

/// A random matrix of a codec and the bytes that hold it.
struct StoredMatrix {
  Codec codec;
  int64_t rows = 0;
  int64_t columns = 0;
  UnalignedBytes data;
  UnalignedBytes scales;
  UnalignedBytes offsets;

  MatrixView view() const {
    return {.codec = codec,
            .rows = rows,
            .columns = columns,
            .data = data.data(),
            .scales = scales.size() > 0 ? scales.data() : nullptr,
            .offsets = offsets.size() > 0 ? offsets.data() : nullptr};
  }
};

inline void put_u16(UnalignedBytes& bytes, int64_t index, uint16_t value) {
  std::memcpy(bytes.data() + index * 2, &value, sizeof value);
}

inline StoredMatrix random_matrix(Random& random, const Codec& codec, int64_t rows, int64_t columns) {
  StoredMatrix matrix{
      .codec = codec, .rows = rows, .columns = columns, .data = {}, .scales = {}, .offsets = {}};
  matrix.data = UnalignedBytes(static_cast<size_t>(rows * codec.row_bytes(columns)));
  if (codec.is_float()) {
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float value = random.normal(0.5F);
      if (codec.kind == Codec::Kind::f16) {
        put_u16(matrix.data, i, float_to_half(value));
      } else if (codec.kind == Codec::Kind::bf16) {
        put_u16(matrix.data, i, float_to_bfloat16(value));
      } else {
        std::memcpy(matrix.data.data() + i * 4, &value, sizeof value);
      }
    }
    return matrix;
  }
  for (size_t i = 0; i < matrix.data.size(); ++i)
    matrix.data.data()[i] = static_cast<std::byte>(random.bits());
  const int64_t slots = rows * codec.groups(columns);
  matrix.scales = UnalignedBytes(static_cast<size_t>(slots * 2));
  if (!codec.symmetric) matrix.offsets = UnalignedBytes(static_cast<size_t>(slots * 2));
  for (int64_t i = 0; i < slots; ++i) {
    // One scale in sixteen is zero: a group of zero weights.
    const float scale = random.between(0, 15) == 0 ? 0.0F : 0.02F * (1 + std::fabs(random.normal()));
    put_u16(matrix.scales, i, float_to_half(scale));
    if (!codec.symmetric) put_u16(matrix.offsets, i, float_to_half(random.normal(0.2F)));
  }
  return matrix;
}

inline Codec integer_codec(int bits, int64_t group, bool symmetric) {
  return {.kind = Codec::Kind::integer, .bits = bits, .group = group, .symmetric = symmetric};
}

/// |actual − expected| ≤ bound · magnitude, or both not a number.
inline testing::AssertionResult close(double actual, double expected, double bound, double magnitude) {
  if (std::isnan(expected) && std::isnan(actual)) return testing::AssertionSuccess();
  if (actual == expected) return testing::AssertionSuccess();
  const double error = std::fabs(actual - expected);
  // The second term: a SiLU whose e^-x overflows is 0 instead of some 1e-37.
  if (error <= bound * magnitude + 1e-36) return testing::AssertionSuccess();
  return testing::AssertionFailure() << actual << " is not " << expected << ": error " << error << " is "
                                     << error / magnitude << " of " << magnitude << ", allowed " << bound;
}

}  // namespace hexlm::test

/// Instantiates a fixture derived from KernelTest for every set.
#define HEXLM_FOR_EVERY_SET(fixture)                                                                    \
  INSTANTIATE_TEST_SUITE_P(Sets, fixture,                                                               \
                           testing::ValuesIn(hexlm::kernel_sets().begin(), hexlm::kernel_sets().end()), \
                           hexlm::test::set_name)
