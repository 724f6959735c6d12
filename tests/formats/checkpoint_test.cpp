#include <bit>
#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "formats/check_finite.hpp"
#include "formats/checkpoint_weights.hpp"
#include "formats/safetensors.hpp"
#include "formats/safetensors_text.hpp"
#include "support/temporary_folder.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

/// A file of U8 tensors of one byte each.
std::string byte_tensors(const std::vector<std::string>& names) {
  std::vector<std::string> entries;
  entries.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    entries.push_back(header_entry(names[i], "U8", "1", i, i + 1));
  }
  return safetensors_bytes(header_of(entries), std::string(names.size(), 'x'));
}

void write_index(const TemporaryFolder& folder, const std::string& weight_map) {
  write_test_file(folder.file("model.safetensors.index.json"),
                  R"({"metadata":{},"weight_map":)" + weight_map + "}");
}

Error refusal(const std::string& folder) {
  const auto checkpoint = Checkpoint::open(folder);
  EXPECT_FALSE(checkpoint);
  if (checkpoint) return {};
  EXPECT_EQ(checkpoint.error().code, ErrorCode::bad_input);
  EXPECT_EQ(checkpoint.error().message.find('\n'), std::string::npos);
  return checkpoint.error();
}

TEST(Checkpoint, OpensASingleFile) {
  const auto checkpoint = Checkpoint::open(test_data("reference/qwen2_tied/checkpoint"));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const TensorView* tensor = checkpoint->find("model.embed_tokens.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape.size(), 2U);
  EXPECT_EQ(checkpoint->find("nothing"), nullptr);
  EXPECT_EQ(checkpoint->file_of("nothing"), nullptr);
}

TEST(Checkpoint, OpensShards) {
  const std::string folder = test_data("reference/qwen2_untied_sharded/checkpoint");
  auto opened = Checkpoint::open(folder);
  ASSERT_TRUE(opened) << opened.error().message;
  const Checkpoint checkpoint = std::move(*opened);
  EXPECT_EQ(checkpoint.folder(), folder);
  uint64_t bytes = 0;
  for (const TensorView* tensor : checkpoint.tensors()) bytes += tensor->bytes.size();
  EXPECT_EQ(bytes, 1'248'128U);  // the index's total_size
  ASSERT_NE(checkpoint.file_of("lm_head.weight"), nullptr);
  EXPECT_EQ(checkpoint.file_of("lm_head.weight")->path(), folder + "/model-00004-of-00004.safetensors");
  EXPECT_EQ(checkpoint.find("lm_head.weight")->shape, (std::vector<int64_t>{512, 128}));
}

TEST(Checkpoint, SaysWhatIsWrongWithAFolder) {
  const TemporaryFolder folder;
  EXPECT_THAT(refusal(folder.file("missing")).message, HasSubstr("missing: no such folder"));
  write_test_file(folder.file("file"), "x");
  EXPECT_THAT(refusal(folder.file("file")).message, HasSubstr("expected a checkpoint folder, got a file"));
  EXPECT_THAT(refusal(folder.path()).message, HasSubstr("neither model.safetensors nor"));
  write_test_file(folder.file("model.gguf"), "x");
  EXPECT_THAT(refusal(folder.path()).hint, HasSubstr("GGUF"));
  write_test_file(folder.file("pytorch_model.bin"), "x");
  EXPECT_THAT(refusal(folder.path()).hint, HasSubstr("convert them to safetensors"));
  write_test_file(folder.file("other.safetensors"), byte_tensors({"a"}));
  EXPECT_THAT(refusal(folder.path()).hint, HasSubstr("other.safetensors"));
}

TEST(Checkpoint, AMissingShardIsNamed) {
  const TemporaryFolder folder;
  write_index(folder, R"({"a":"m1.safetensors","b":"m2.safetensors","c":"m2.safetensors"})");
  write_test_file(folder.file("m1.safetensors"), byte_tensors({"a"}));
  const std::string message = refusal(folder.path()).message;
  EXPECT_THAT(message, HasSubstr("m2.safetensors: shard is missing"));
  EXPECT_THAT(message, HasSubstr("2 tensors"));
  EXPECT_THAT(message, HasSubstr("'b'"));
}

TEST(Checkpoint, ATruncatedShardIsNamed) {
  const TemporaryFolder folder;
  write_index(folder, R"({"a":"m1.safetensors","b":"m1.safetensors"})");
  const std::string whole = byte_tensors({"a", "b"});
  write_test_file(folder.file("m1.safetensors"), whole.substr(0, whole.size() - 1));
  const std::string message = refusal(folder.path()).message;
  EXPECT_THAT(message, HasSubstr("m1.safetensors: tensor 'b'"));
  EXPECT_THAT(message, HasSubstr("only 1 of 2 data bytes"));
}

TEST(Checkpoint, ATensorAbsentFromItsShardIsNamed) {
  const TemporaryFolder folder;
  write_index(folder, R"({"a":"m1.safetensors","b":"m1.safetensors"})");
  write_test_file(folder.file("m1.safetensors"), byte_tensors({"a"}));
  const std::string message = refusal(folder.path()).message;
  EXPECT_THAT(message,
              HasSubstr("m1.safetensors: tensor 'b' is listed in the index but not among the shard's 1"));
}

TEST(Checkpoint, ATensorInTwoShardsIsNamed) {
  const TemporaryFolder folder;
  write_index(folder, R"({"a":"m1.safetensors","b":"m2.safetensors"})");
  write_test_file(folder.file("m1.safetensors"), byte_tensors({"a"}));
  write_test_file(folder.file("m2.safetensors"), byte_tensors({"a", "b"}));
  const std::string message = refusal(folder.path()).message;
  EXPECT_THAT(message, HasSubstr("tensor 'a' lies in two shards"));
  EXPECT_THAT(message, HasSubstr("m1.safetensors"));
  EXPECT_THAT(message, HasSubstr("m2.safetensors"));
}

TEST(Checkpoint, ATensorThatTheIndexDoesNotListIsNamed) {
  const TemporaryFolder folder;
  write_index(folder, R"({"a":"m1.safetensors"})");
  write_test_file(folder.file("m1.safetensors"), byte_tensors({"a", "b"}));
  EXPECT_THAT(refusal(folder.path()).message,
              HasSubstr("m1.safetensors: tensor 'b' is not among the 1 that the index lists in this shard"));
}

TEST(Checkpoint, MalformedIndexesAreRefused) {
  const TemporaryFolder folder;
  write_test_file(folder.file("m1.safetensors"), byte_tensors({"a"}));
  for (const char* map : {"[]", "{}", "null", R"({"a":1})", R"({"a":["m1.safetensors"]})",
                          R"({"a":"m1.safetensors","a":"m1.safetensors"})"}) {
    write_index(folder, map);
    EXPECT_THAT(refusal(folder.path()).message, HasSubstr("model.safetensors.index.json")) << map;
  }
  for (const char* text : {"", "[]", "{}", "{\"weight_map\":{\"a\":\"m1.safetensors\"}"}) {
    write_test_file(folder.file("model.safetensors.index.json"), text);
    EXPECT_THAT(refusal(folder.path()).message, HasSubstr("model.safetensors.index.json")) << text;
  }
}

TEST(Checkpoint, AnIndexMayNotLeaveTheFolder) {
  const TemporaryFolder outer;
  write_test_file(outer.file("m1.safetensors"), byte_tensors({"a"}));
  const std::string inner = outer.file("inner");
  std::filesystem::create_directory(inner);
  const std::string absolute = outer.file("m1.safetensors");
  for (const std::string& name :
       {std::string("../m1.safetensors"), absolute, std::string("x/../../m1.safetensors"), std::string(""),
        std::string("."), std::string(".."), std::string("./"), std::string("m1.safetensors\\u0000")}) {
    write_test_file(inner + "/model.safetensors.index.json", R"({"weight_map":{"a":")" + name + "\"}}");
    EXPECT_THAT(refusal(inner).message, HasSubstr("not a path within the folder")) << name;
  }
}

TEST(CanonicalName, FollowsTheTableOfSources) {
  EXPECT_EQ(canonical_name("model.layers.0.mlp.up_proj.weight"), "layers.0.mlp.up_proj.weight");
  EXPECT_EQ(canonical_name("model.language_model.embed_tokens.weight"), "embed_tokens.weight");
  EXPECT_EQ(canonical_name("language_model.model.norm.weight"), "norm.weight");
  EXPECT_EQ(canonical_name("language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(canonical_name("lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(canonical_name("visual.blocks.0.attn.qkv.bias"), "visual.blocks.0.attn.qkv.bias");
  EXPECT_EQ(canonical_name("model.visual.patch_embed.proj.weight"), "visual.patch_embed.proj.weight");
  EXPECT_EQ(canonical_name("mtp.fc.weight"), std::nullopt);
  EXPECT_EQ(canonical_name("model.layers.3.self_attn.rotary_emb.inv_freq"), std::nullopt);
}

TEST(CheckpointWeights, FindsFloatWeightsByCanonicalName) {
  const auto weights = CheckpointWeights::open(test_data("reference/qwen2_untied_sharded/checkpoint"));
  ASSERT_TRUE(weights) << weights.error().message;
  const auto weight = (*weights)->find("layers.0.mlp.down_proj.weight");
  ASSERT_TRUE(weight) << weight.error().message;
  EXPECT_EQ(weight->name, "layers.0.mlp.down_proj.weight");
  EXPECT_EQ(weight->codec.kind, Codec::Kind::bf16);
  EXPECT_EQ(weight->rows(), 128);
  EXPECT_EQ(weight->columns(), 320);
  EXPECT_EQ(weight->stored_bytes(), 128U * 320 * 2);
  const std::vector<std::byte> before(weight->data.bytes.begin(), weight->data.bytes.end());
  (*weights)->release(*weight);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), weight->data.bytes.begin()));
  EXPECT_TRUE((*weights)->contains("lm_head.weight"));
  EXPECT_FALSE((*weights)->contains("model.embed_tokens.weight"));
  const auto missing = (*weights)->find("layers.0.mlp.down_proj.weigth");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::bad_input);
  EXPECT_THAT(missing.error().message,
              HasSubstr("the weight 'model.layers.0.mlp.down_proj.weigth' is missing"));
  EXPECT_THAT(missing.error().hint, HasSubstr("'model.layers.0.mlp.down_proj.weight'"));
  EXPECT_THAT((*weights)->find("lm_head.bias").error().message, HasSubstr("the weight 'lm_head.bias' is"));
}

TEST(CheckpointWeights, OtherDtypesAreUnsupportedWhenAskedFor) {
  const TemporaryFolder folder;
  write_test_file(folder.file("model.safetensors"), byte_tensors({"model.a", "mtp.b"}));
  const auto weights = CheckpointWeights::open(folder.path());
  ASSERT_TRUE(weights);
  EXPECT_EQ((*weights)->names(), std::vector<std::string>{"a"});
  const auto weight = (*weights)->find("a");
  ASSERT_FALSE(weight);
  EXPECT_EQ(weight.error().code, ErrorCode::unsupported);
  EXPECT_THAT(weight.error().message, HasSubstr("model.safetensors: tensor 'model.a' has dtype U8"));
}

TEST(CheckpointWeights, TwoSourcesOfOneNameAreRefused) {
  const TemporaryFolder folder;
  write_test_file(folder.file("model.safetensors"),
                  byte_tensors({"model.norm", "model.language_model.norm"}));
  const auto weights = CheckpointWeights::open(folder.path());
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, ErrorCode::bad_input);
  EXPECT_THAT(weights.error().message, HasSubstr("'model.norm'"));
  EXPECT_THAT(weights.error().message, HasSubstr("'model.language_model.norm'"));
}

class CheckFiniteTest : public testing::TestWithParam<DType> {
 protected:
  static constexpr size_t count = 10'001;  // more than two blocks, and not a whole number of them

  static float widen(DType dtype, uint16_t bits) {
    return dtype == DType::f16 ? half_to_float(bits) : bfloat16_to_float(bits);
  }
  /// A weight of ordinary values with `value` at `index`, its bytes not aligned to the element.
  Status check(size_t index, float value) {
    const DType dtype = GetParam();
    const size_t width = static_cast<size_t>(bit_width(dtype)) / 8;
    storage_.assign(count * width + 1, std::byte{0});
    for (size_t i = 0; i < count; ++i) {
      const float element = i == index ? value : static_cast<float>(i % 100) - 50.0F;
      const uint32_t wide = std::bit_cast<uint32_t>(element);
      const uint16_t narrow = dtype == DType::f16 ? float_to_half(element) : float_to_bfloat16(element);
      std::memcpy(storage_.data() + 1 + i * width, width == 4 ? static_cast<const void*>(&wide) : &narrow,
                  width);
    }
    WeightView weight;
    weight.shape = {static_cast<int64_t>(count)};
    weight.data = {"layers.3.w", dtype, weight.shape, std::span(storage_).subspan(1)};
    return check_finite(weight, "dir/model.safetensors");
  }
  std::vector<std::byte> storage_;
};

TEST_P(CheckFiniteTest, FindsEveryKindOfNonfiniteAnywhere) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const size_t index : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{9999}, count - 1}) {
    for (const auto& [value, text] : std::vector<std::pair<float, std::string>>{
             {std::numeric_limits<float>::quiet_NaN(), "nan"}, {infinity, "inf"}, {-infinity, "-inf"}}) {
      const Status status = check(index, value);
      ASSERT_FALSE(status) << index << text;
      EXPECT_EQ(status.error().code, ErrorCode::bad_input);
      EXPECT_THAT(status.error().message, HasSubstr("dir/model.safetensors: tensor 'layers.3.w': element " +
                                                    std::to_string(index) + " is " + text + ","));
    }
  }
}

TEST_P(CheckFiniteTest, AcceptsEveryFiniteValue) {
  EXPECT_TRUE(check(7, 0.0F));
  const float largest = GetParam() == DType::f16 ? 65504.0F : 3.3e38F;
  EXPECT_TRUE(check(7, largest));
  EXPECT_TRUE(check(7, -largest));
  EXPECT_TRUE(check(7, std::numeric_limits<float>::denorm_min()));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CheckFiniteTest, testing::Values(DType::f32, DType::f16, DType::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(CheckFinite, LooksAtScalesAndOffsetsOfIntegerWeights) {
  const std::vector<uint16_t> good = {0x3c00, 0x3c00};
  const std::vector<uint16_t> bad = {0x3c00, 0x7c01};
  WeightView weight;
  weight.codec = {Codec::Kind::integer, 4, 0, false};
  weight.shape = {2, 4};
  weight.scales = {"w.scales", DType::f16, {2, 1}, std::as_bytes(std::span(good))};
  weight.offsets = {"w.offsets", DType::f16, {2, 1}, std::as_bytes(std::span(good))};
  EXPECT_TRUE(check_finite(weight, "x"));
  weight.offsets.bytes = std::as_bytes(std::span(bad));
  EXPECT_THAT(check_finite(weight, "x").error().message, HasSubstr("'w.offsets': element 1 is nan"));
  weight.scales.bytes = std::as_bytes(std::span(bad));
  EXPECT_THAT(check_finite(weight, "x").error().message, HasSubstr("'w.scales'"));
}

}  // namespace
}  // namespace hexlm
