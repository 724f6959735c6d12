#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/backend.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

TEST(BackendRegistry, MakesTheCpuBackend) {
  const auto backend = make_backend("cpu");
  ASSERT_TRUE(backend);
  EXPECT_EQ((*backend)->name(), "cpu");
}

TEST(BackendRegistry, AbsentBackendsSayHowToBuildThem) {
  for (const char* name : {"opencl", "hexagon", "qnn", "onnxruntime"}) {
    const auto backend = make_backend(name);
    ASSERT_FALSE(backend) << name;
    EXPECT_EQ(backend.error().code, ErrorCode::device);
    EXPECT_THAT(backend.error().message, HasSubstr(name));
    EXPECT_THAT(backend.error().message, HasSubstr("not part of this build"));
    EXPECT_THAT(backend.error().hint, HasSubstr("building it takes"));
  }
}

TEST(BackendRegistry, NamesTheNearest) {
  const auto backend = make_backend("hexagn");
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().code, ErrorCode::usage);
  EXPECT_THAT(backend.error().message, HasSubstr("'hexagn'"));
  EXPECT_THAT(backend.error().hint, HasSubstr("did you mean hexagon?"));
  EXPECT_THAT(backend.error().hint, HasSubstr("cpu, opencl, hexagon, qnn, onnxruntime"));
}

TEST(Precision, HasNames) {
  EXPECT_EQ(to_string(Precision::low), "low");
  EXPECT_EQ(to_string(Precision::normal), "normal");
  EXPECT_EQ(to_string(Precision::high), "high");
}

}  // namespace
}  // namespace hexlm
