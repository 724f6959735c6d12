#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "kernels/kernels.hpp"
#include "kernels/tolerance.hpp"

namespace hexlm {
namespace {

class Registry : public testing::Test {
 protected:
  void TearDown() override { unsetenv("HEXLM_ISA"); }
};

TEST_F(Registry, ListsTheReferenceLastAndEveryEntryIsSet) {
  ASSERT_FALSE(kernel_sets().empty());
  EXPECT_EQ(kernel_sets().back(), &reference_kernels());
  EXPECT_STREQ(reference_kernels().name, "scalar");
  for (const KernelSet* set : kernel_sets()) {
    SCOPED_TRACE(set->name);
    EXPECT_TRUE(set->supported && set->float_linear && set->pack && set->quantize_rows && set->int8_linear &&
                set->dequantize_row && set->rms_norm && set->gated_rms_norm && set->rope && set->add &&
                set->silu_multiply && set->sigmoid_multiply && set->store_half && set->store_int8 &&
                set->attention && set->causal_convolution && set->delta_net && set->layer_norm &&
                set->gelu_tanh && set->gelu_erf && set->gelu_quick);
  }
}

TEST_F(Registry, TakesTheFirstSetThatTheProcessorSupports) {
  unsetenv("HEXLM_ISA");
  const auto chosen = select_kernels();
  ASSERT_TRUE(chosen);
  for (const KernelSet* set : kernel_sets()) {
    if (!set->supported(cpu_features())) continue;
    EXPECT_EQ(*chosen, set);
    break;
  }
}

TEST_F(Registry, TakesTheNamedSetOrRefusesIt) {
  for (const KernelSet* set : kernel_sets()) {
    setenv("HEXLM_ISA", set->name, 1);
    const auto chosen = select_kernels();
    if (set->supported(cpu_features())) {
      ASSERT_TRUE(chosen) << chosen.error().message;
      EXPECT_EQ(*chosen, set);
    } else {
      ASSERT_FALSE(chosen);
      EXPECT_EQ(chosen.error().code, ErrorCode::device);
      EXPECT_THAT(chosen.error().message, testing::HasSubstr(set->name));
    }
  }
}

TEST_F(Registry, RefusesAnUnknownNameWithTheList) {
  setenv("HEXLM_ISA", "sse9", 1);
  const auto chosen = select_kernels();
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().code, ErrorCode::usage);
  EXPECT_THAT(chosen.error().message, testing::HasSubstr("\"sse9\""));
  for (const KernelSet* set : kernel_sets()) {
    EXPECT_THAT(chosen.error().message, testing::HasSubstr(set->name));
  }
}

TEST_F(Registry, SetsAskForTheFeaturesTheyUse) {
  CpuFeatures none;
  CpuFeatures avx2;
  avx2.avx2 = true;
  CpuFeatures avx512 = avx2;
  avx512.avx512 = true;
  CpuFeatures vnni = avx512;
  vnni.avx512_vnni = true;
  for (const KernelSet* set : kernel_sets()) {
    const std::string name = set->name;
    EXPECT_EQ(set->supported(none), name == "scalar") << name;
    if (name == "avx2") {
      EXPECT_TRUE(set->supported(avx2));
    }
    if (name == "avx512_vnni") {
      EXPECT_FALSE(set->supported(avx512));
      EXPECT_TRUE(set->supported(vnni));
    }
  }
}

}  // namespace
}  // namespace hexlm
