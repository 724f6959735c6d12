#include <gtest/gtest.h>

#include "logit_pair.hpp"
#include "quantization/export.hpp"
#include "quantization/import_cases.hpp"

namespace hexlm {
namespace {

/// A tiny model in each format against its dequantized float twin.
class ImportLogits : public testing::TestWithParam<ImportCase> {};

TEST_P(ImportLogits, RunInPlaceAndAsPackageAreTheFloatTwin) {
  const TemporaryFolder folder;
  write_pair(GetParam(), folder.file("packed"), folder.file("twin"));
  const std::vector<float> twin = fixed_logits(folder.file("twin"));
  EXPECT_LE(relative_norm(fixed_logits(folder.file("packed")), twin), 1e-5);
  ExportOptions options;
  options.checkpoint = folder.file("packed");
  options.package = folder.file("package");
  options.linear = options.embedding = Codec{};
  const auto plan = plan_export(options);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(export_package(options, *plan, nullptr));
  EXPECT_LE(relative_norm(fixed_logits(options.package), twin), 1e-5);
  // int8 activations cost about a percent; a broken scale or order costs everything.
  EXPECT_LE(relative_norm(fixed_logits(options.package, Precision::normal), twin), 0.1);
}

INSTANTIATE_TEST_SUITE_P(Formats, ImportLogits, testing::ValuesIn(import_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hexlm
