#include "evaluation/verify_package.hpp"

#include <cstring>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/half.hpp"
#include "base/hash.hpp"
#include "formats/package.hpp"
#include "quantization/export.hpp"
#include "support/temporary_folder.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class VerifyPackage : public testing::Test {
 protected:
  std::string source(const char* name) const {
    return std::string(name) == "tiny-vl" ? test_data("models/tiny-vl")
                                          : test_data(fmt::format("reference/{}/checkpoint", name));
  }
  void export_as(const char* name, const char* codec) {
    ExportOptions options;
    options.checkpoint = source(name);
    options.package = package_;
    options.linear = *parse_codec(codec);
    options.replace = true;
    const auto plan = plan_export(options);
    ASSERT_TRUE(plan) << plan.error().message;
    ASSERT_TRUE(export_package(options, *plan, nullptr));
  }
  Result<Verification> verify(const char* name) const {
    return verify_package(source(name), {}, package_, 2);
  }

  /// Changes one byte of a tensor's part and gives every checksum the value that fits.
  void tamper(const std::string& name, const std::string& part, size_t at, int bits) const {
    const std::string path = package_ + "/weights.safetensors";
    std::string bytes = read_test_file(path);
    Json manifest = *read_json(package_ + "/manifest.json");
    {
      const auto file = SafetensorsFile::open(path);
      ASSERT_TRUE(file);
      const auto offset_of = [&](const TensorView& view) {
        return static_cast<size_t>(view.bytes.data() - file->file().bytes().data());
      };
      bytes[offset_of(*file->find(name + part)) + at] ^= static_cast<char>(bits);
      for (Json& tensor : manifest["tensors"]) {
        if (tensor["name"] != name) continue;
        Hasher hasher;
        for (const char* stored : {"", ".codes", ".scales", ".offsets"}) {
          const TensorView* view = file->find(name + stored);
          if (view == nullptr) continue;
          hasher.update(std::as_bytes(std::span(bytes).subspan(offset_of(*view), view->bytes.size())));
        }
        tensor["checksum"] = to_hex(hasher.digest());
      }
    }
    write_test_file(path, bytes);
    write_test_file(package_ + "/manifest.json", seal_manifest(manifest));
    ASSERT_TRUE(Package::open(package_, true, 1)) << "the checksums fit";
  }

  TemporaryFolder folder_;
  std::string package_ = folder_.file("package");
};

TEST_F(VerifyPackage, ComputesWhatItsWeightsSayAtAnyNumberOfBits) {
  for (const char* name : {"qwen2_tied", "qwen3_moe", "qwen3_5_text"}) {
    for (const char* codec : {"w2", "w3g32a", "w4g64", "w8", "f16", "f32"}) {
      SCOPED_TRACE(fmt::format("{} {}", name, codec));
      ASSERT_NO_FATAL_FAILURE(export_as(name, codec));
      const auto verification = verify(name);
      ASSERT_TRUE(verification) << verification.error().message;
      EXPECT_TRUE(verification->passed());
      EXPECT_TRUE(verification->weights_compared);
      EXPECT_EQ(verification->tokens, 64);
      EXPECT_LE(verification->execution_error, 3e-5);
      EXPECT_GT(verification->execution_error, 0) << "two different programs";
    }
  }
}

TEST_F(VerifyPackage, TwoBitsPassButTheirDistanceIsSaid) {
  export_as("tiny-vl", "w2");
  const auto verification = verify("tiny-vl");
  ASSERT_TRUE(verification);
  EXPECT_TRUE(verification->passed());
  EXPECT_LT(verification->top1_agreement, 0.1);
  EXPECT_GT(verification->relative_error, 0.9);
  EXPECT_THAT(verification->warning(), HasSubstr("agrees with its source on 1.6 % of the next tokens"));
  EXPECT_THAT(describe(*verification), HasSubstr("top-1 agreement 1.6 %"));
  export_as("tiny-vl", "w4g64");
  const auto finer = verify("tiny-vl");
  ASSERT_TRUE(finer);
  EXPECT_EQ(finer->warning(), "");
  EXPECT_GT(finer->top1_agreement, 0.7);
}

TEST_F(VerifyPackage, OneStoredValueThatIsNotTheCheckpointsFails) {
  struct Case {
    const char* name;
    const char* part;
    size_t at;
    const char* message;
  };
  for (const Case& wrong : {Case{"layers.1.mlp.down_proj.weight", ".scales", 10, "scale [0, 5] is "},
                            Case{"layers.1.mlp.down_proj.weight", ".codes", 300, "byte "},
                            Case{"layers.0.self_attn.q_proj.weight", ".offsets", 0, "offset [0, 0] is "},
                            Case{"norm.weight", "", 9, "element 2 is "}}) {
    export_as("qwen3", "w4g16a");
    ASSERT_NO_FATAL_FAILURE(tamper(wrong.name, wrong.part, wrong.at, 1));
    const auto verification = verify("qwen3");
    ASSERT_FALSE(verification) << wrong.part;
    EXPECT_EQ(verification.error().code, ErrorCode::verification);
    EXPECT_THAT(verification.error().message,
                AllOf(HasSubstr(fmt::format("tensor '{}': {}", wrong.name, wrong.message)),
                      HasSubstr(", the checkpoint's weights give ")));
  }
}

TEST_F(VerifyPackage, OfAnotherCheckpointFails) {
  export_as("qwen2_tied", "w8");
  EXPECT_FALSE(verify("qwen3"));
}

TEST(VerificationTest, LogitsThatAreNotTheWeightsFail) {
  Verification verification;
  verification.finite = true;
  verification.allowed_execution_error = 1e-4;
  verification.execution_error = 1e-5;
  EXPECT_TRUE(verification.passed());
  verification.execution_error = 1;  // logits of zero
  EXPECT_FALSE(verification.passed());
  EXPECT_THAT(verification.error().message, HasSubstr("are 1 off what its stored weights give"));
  verification.execution_error = 0;
  verification.finite = false;
  EXPECT_FALSE(verification.passed());
  EXPECT_EQ(to_json(verification)["verdict"], "fail");
}

}  // namespace
}  // namespace hexlm
