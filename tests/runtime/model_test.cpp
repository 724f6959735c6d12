#include "runtime/model.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/checkpoint_weights.hpp"
#include "runtime/tiny_model.hpp"
#include "support/temporary_folder.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

/// A copy of a small reference checkpoint that a test may damage.
void copy_checkpoint(const std::string& name, const TemporaryFolder& folder) {
  fs::copy(test_data("reference/" + name + "/checkpoint"), folder.path());
}

Error refusal(const std::string& folder, bool verify = true) {
  const auto model = Model::open(folder, {2, verify, {}});
  EXPECT_FALSE(model);
  return model ? Error() : model.error();
}

TEST(Model, OpensACheckpoint) {
  const auto model = open_tiny_model();
  ASSERT_TRUE(model);
  EXPECT_FALSE(model->is_package());
  EXPECT_NE(model->tokenizer(), nullptr);
  EXPECT_NE(model->chat_template(), nullptr);
  EXPECT_EQ(model->bits_per_weight(), 16);
  EXPECT_EQ(model->weight_bytes(), 2 * static_cast<uint64_t>(model->parameter_count()));
  EXPECT_EQ(model->usable_vocabulary(), std::min<int64_t>(6144, model->tokenizer()->size()));
  EXPECT_FLOAT_EQ(model->generation().sampling.temperature, 0.7F);
  EXPECT_EQ(model->generation().sampling.top_k, 20);
  // config.json says 6137, generation_config.json 6137 and 6135, the tokenizer <|im_end|> = 6137.
  EXPECT_THAT(model->generation().eos_tokens, UnorderedElementsAre(6137, 6135));
}

TEST(Model, UnitesEosTokensOfAllFiles) {
  const TemporaryFolder folder;
  copy_checkpoint("qwen2_tied", folder);
  Json config = *read_json(folder.file("config.json"));
  config["eos_token_id"] = Json::array({11, 12});
  write_test_file(folder.file("config.json"), config.dump());
  write_test_file(folder.file("generation_config.json"), R"({"eos_token_id": [12, 13]})");
  const auto model = Model::open(folder.path(), {1, true, {}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT((*model)->generation().eos_tokens, UnorderedElementsAre(11, 12, 13));
  EXPECT_EQ((*model)->tokenizer(), nullptr);
  EXPECT_EQ((*model)->usable_vocabulary(), (*model)->config().text.vocabulary_size);
}

TEST(Model, SaysWhatAFolderLacks) {
  const TemporaryFolder folder;
  EXPECT_THAT(refusal(folder.file("absent")).message, HasSubstr("does not exist"));
  EXPECT_THAT(refusal(folder.path()).message, HasSubstr("neither a manifest.json"));
  EXPECT_EQ(refusal(folder.path()).code, ErrorCode::bad_input);
}

TEST(Model, NamesAMissingTensor) {
  const TemporaryFolder folder;
  copy_checkpoint("qwen2_tied", folder);
  Json config = *read_json(folder.file("config.json"));
  config["num_hidden_layers"] = config["num_hidden_layers"].get<int>() + 1;
  config.erase("layer_types");
  write_test_file(folder.file("config.json"), config.dump());
  const Error error = refusal(folder.path());
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, HasSubstr("is missing"));
  EXPECT_THAT(error.message, HasSubstr("layers."));
}

TEST(Model, NamesATensorOfAnotherShape) {
  const TemporaryFolder folder;
  copy_checkpoint("qwen2_tied", folder);
  Json config = *read_json(folder.file("config.json"));
  const auto intermediate = config["intermediate_size"].get<int64_t>();
  config["intermediate_size"] = intermediate + 32;
  write_test_file(folder.file("config.json"), config.dump());
  const Error error = refusal(folder.path());
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, HasSubstr("model.safetensors"));
  EXPECT_THAT(error.message, HasSubstr("gate_proj.weight"));
  EXPECT_THAT(error.message, HasSubstr(std::to_string(intermediate)));
  EXPECT_THAT(error.message, HasSubstr(std::to_string(intermediate + 32)));
}

/// Writes a NaN over one element of a tensor, in place.
void poison(const std::string& folder, const std::string& canonical, size_t element) {
  const std::string file = folder + "/model.safetensors";
  size_t offset = 0;
  {
    const auto weights = CheckpointWeights::open(folder);
    ASSERT_TRUE(weights);
    const auto weight = (*weights)->find(canonical);
    ASSERT_TRUE(weight);
    ASSERT_EQ(weight->data.dtype, DType::bf16);
    const MappedFile* mapped = (*weights)->checkpoint().file_of(weight->data.name);
    offset = static_cast<size_t>(weight->data.bytes.data() - mapped->bytes().data()) + 2 * element;
  }
  std::string content = read_test_file(file);
  content[offset] = '\xc0';
  content[offset + 1] = '\x7f';  // 0x7fc0
  write_test_file(file, content);
}

TEST(Model, FindsNaNWhenItVerifies) {
  const TemporaryFolder folder;
  copy_checkpoint("qwen2_tied", folder);
  poison(folder.path(), "layers.1.mlp.down_proj.weight", 77);
  const Error error = refusal(folder.path());
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, HasSubstr("layers.1.mlp.down_proj.weight"));
  EXPECT_THAT(error.message, HasSubstr("element 77 is nan"));
  EXPECT_TRUE(Model::open(folder.path(), {1, false, {}}));
}

TEST(Model, RefusesATokenizerLargerThanTheVocabulary) {
  const TemporaryFolder folder;
  copy_checkpoint("qwen2_tied", folder);
  fs::copy(test_data("models/tiny-vl/tokenizer.json"), folder.path());
  const Error error = refusal(folder.path());
  EXPECT_EQ(error.code, ErrorCode::bad_input);
  EXPECT_THAT(error.message, HasSubstr("tokenizer.json has ids up to 6143"));
  EXPECT_THAT(error.message, HasSubstr("512 rows"));
}

TEST(Model, KeepsTheReasonWhyATemplateIsUnusable) {
  const TemporaryFolder folder;
  copy_checkpoint("qwen2_tied", folder);
  write_test_file(folder.file("chat_template.jinja"), "{% if %}");
  const auto model = Model::open(folder.path(), {1, true, {}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->chat_template(), nullptr);
  ASSERT_TRUE((*model)->chat_template_error());
  EXPECT_THAT((*model)->chat_template_error()->message, HasSubstr("chat_template.jinja"));
}

}  // namespace
}  // namespace hexlm
