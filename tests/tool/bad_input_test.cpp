#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/safetensors.hpp"
#include "tool/program.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

/// A copy of a model that a test may damage.
class DamagedModel {
 public:
  explicit DamagedModel(const std::string& source) { fs::copy(source, path(), fs::copy_options::recursive); }
  std::string path() const { return folder_.file("model"); }
  std::string file(const std::string& name) const { return path() + "/" + name; }
  /// Where output of a test may go; it must stay absent.
  std::string output() const { return folder_.file("output"); }

  void truncate(const std::string& name, uint64_t removed) const {
    fs::resize_file(file(name), fs::file_size(file(name)) - removed);
  }
  void edit_json(const std::string& name, const std::function<void(Json&)>& edit) const {
    Json json = *read_json(file(name));
    edit(json);
    write_test_file(file(name), json.dump());
  }
  void edit_bytes(const std::string& name, const std::function<void(std::string&)>& edit) const {
    std::string content = read_test_file(file(name));
    edit(content);
    write_test_file(file(name), content);
  }

 private:
  TemporaryFolder folder_;
};

/// Every verb that reads weights refuses, with one `error:` line that holds `parts`, and writes nothing.
void expect_refused(const DamagedModel& model, int code, const std::vector<std::string>& parts) {
  const std::vector<std::vector<std::string>> commands = {
      {"inspect", model.path()},
      {"run", model.path(), "--ids", "1,2,3", "-n", "1"},
      {"logits", model.path(), "--ids", "1,2,3", "-o", model.output()},
      {"export", model.path(), "-o", model.output()}};
  const bool package = fs::exists(model.file("manifest.json"));
  for (const auto& command : commands) {
    if (package && command[0] == "export") continue;
    const auto result = run_hexlm(command);
    EXPECT_EQ(result.code, code) << command[0] << ": " << result.err;
    EXPECT_EQ(result.out, "") << command[0];
    EXPECT_THAT(result.err, HasSubstr("error: ")) << command[0];
    for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part)) << command[0];
    EXPECT_FALSE(fs::exists(model.output())) << command[0];
  }
}

TEST(BadInput, TruncatedFile) {
  const DamagedModel model(reference_checkpoint("qwen3"));
  model.truncate("model.safetensors", 100);
  expect_refused(model, 3, {"model.safetensors"});
}

TEST(BadInput, TruncatedShard) {
  const DamagedModel model(reference_checkpoint("qwen2_untied_sharded"));
  model.truncate("model-00002-of-00004.safetensors", 4096);
  expect_refused(model, 3, {"model-00002-of-00004.safetensors"});
}

TEST(BadInput, MissingShard) {
  const DamagedModel model(reference_checkpoint("qwen2_untied_sharded"));
  fs::remove(model.file("model-00003-of-00004.safetensors"));
  expect_refused(model, 3, {"model-00003-of-00004.safetensors"});
}

TEST(BadInput, IndexThatNamesAnotherShard) {
  const DamagedModel model(reference_checkpoint("qwen2_untied_sharded"));
  model.edit_json("model.safetensors.index.json", [](Json& index) {
    index["weight_map"]["model.norm.weight"] = "model-00001-of-00004.safetensors";
  });
  expect_refused(model, 3, {"model.norm.weight"});
}

TEST(BadInput, MissingTensor) {
  const DamagedModel model(reference_checkpoint("qwen3"));
  model.edit_json("config.json", [](Json& config) {
    config["num_hidden_layers"] = config["num_hidden_layers"].get<int>() + 1;
    config.erase("layer_types");
  });
  expect_refused(model, 3, {"layers.", "is missing"});
}

TEST(BadInput, WrongShape) {
  const DamagedModel model(reference_checkpoint("qwen3"));
  int64_t size = 0;
  model.edit_json("config.json", [&size](Json& config) {
    size = config["intermediate_size"].get<int64_t>();
    config["intermediate_size"] = size + 16;
  });
  expect_refused(model, 3,
                 {"model.safetensors", "_proj.weight", std::to_string(size), std::to_string(size + 16)});
}

TEST(BadInput, NaNWeights) {
  const DamagedModel model(reference_checkpoint("qwen3"));
  size_t offset = 0;
  {
    const auto opened = SafetensorsFile::open(model.file("model.safetensors"));
    ASSERT_TRUE(opened);
    const TensorView* tensor = opened->find("model.layers.0.mlp.up_proj.weight");
    ASSERT_NE(tensor, nullptr);
    ASSERT_EQ(tensor->dtype, DType::bf16);
    offset = static_cast<size_t>(tensor->bytes.data() - opened->file().bytes().data()) + 2 * 33;
  }
  model.edit_bytes("model.safetensors", [offset](std::string& bytes) {
    bytes[offset] = '\xc0';
    bytes[offset + 1] = '\x7f';
  });
  expect_refused(model, 3, {"model.safetensors", "layers.0.mlp.up_proj.weight", "nan"});
  // The scan can be left out; what comes of it is then no silent answer.
  const auto result = run_hexlm({"run", model.path(), "--ids", "1,2,3", "-n", "1", "--no-verify"});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("logit"));
}

TEST(BadInput, LfsPointer) {
  const DamagedModel model(reference_checkpoint("qwen3"));
  write_test_file(model.file("model.safetensors"),
                  "version https://git-lfs.github.com/spec/v1\noid sha256:"
                  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\nsize 1234567\n");
  expect_refused(model, 3, {"model.safetensors", "LFS"});
}

TEST(BadInput, TokenizerOfAnotherModel) {
  const DamagedModel model(reference_checkpoint("qwen3"));
  fs::copy(tiny_model() + "/tokenizer.json", model.path());
  const auto vocabulary = (*read_json(model.file("config.json")))["vocab_size"].get<int64_t>();
  expect_refused(model, 3, {"tokenizer.json", "614", std::to_string(vocabulary)});
}

TEST(BadInput, UnknownModelType) {
  const DamagedModel model(reference_checkpoint("qwen3"));
  model.edit_json("config.json", [](Json& config) { config["model_type"] = "qwen33"; });
  expect_refused(model, 4, {"qwen33", "qwen3_moe", "llama"});
}

TEST(BadInput, ConfigurationThatIsNone) {
  const DamagedModel model(reference_checkpoint("qwen3"));
  model.edit_json("config.json", [](Json& config) { config["hidden_size"] = "large"; });
  expect_refused(model, 3, {"config.json", "hidden_size"});
  write_test_file(model.file("config.json"), "{\"model_type\": ");
  expect_refused(model, 3, {"config.json"});
  fs::remove(model.file("config.json"));
  expect_refused(model, 3, {"config.json"});
}

std::string make_package(const TemporaryFolder& folder) {
  const std::string package = folder.file("package");
  EXPECT_EQ(
      run_hexlm({"export", reference_checkpoint("qwen3"), "-o", package, "--quant", "w4g64", "-q"}).code, 0);
  return package;
}

TEST(BadPackage, OfANewerFormat) {
  const TemporaryFolder folder;
  const DamagedModel model(make_package(folder));
  model.edit_json("manifest.json", [](Json& manifest) { manifest["format_version"] = 2; });
  expect_refused(model, 3, {"manifest.json", "2", "1"});
}

TEST(BadPackage, WithAFlippedBit) {
  const TemporaryFolder folder;
  const DamagedModel model(make_package(folder));
  size_t offset = 0;
  {
    const auto opened = SafetensorsFile::open(model.file("weights.safetensors"));
    ASSERT_TRUE(opened);
    const TensorView* tensor = opened->find("layers.1.mlp.down_proj.weight.codes");
    ASSERT_NE(tensor, nullptr);
    offset = static_cast<size_t>(tensor->bytes.data() - opened->file().bytes().data()) + 100;
  }
  model.edit_bytes("weights.safetensors", [offset](std::string& bytes) { bytes[offset] ^= 0x10; });
  expect_refused(model, 3, {"weights.safetensors", "layers.1.mlp.down_proj.weight", "checksum"});
}

TEST(BadPackage, Truncated) {
  const TemporaryFolder folder;
  const DamagedModel model(make_package(folder));
  model.truncate("weights.safetensors", 1);
  expect_refused(model, 3, {"weights.safetensors"});
}

TEST(BadPackage, WithoutAListedTensor) {
  const TemporaryFolder folder;
  const DamagedModel model(make_package(folder));
  model.edit_json("manifest.json", [](Json& manifest) { manifest["tensors"].erase(3); });
  expect_refused(model, 3, {"manifest.json", "checksum", "damaged or edited"});
}

TEST(BadPackage, WithAFlippedBitBesideTheWeights) {
  const TemporaryFolder folder;
  const std::string package = folder.file("package");
  ASSERT_EQ(run_hexlm({"export", tiny_model(), "-o", package, "-q"}).code, 0);
  for (const char* name : {"manifest.json", "tokenizer.json", "chat_template.jinja", "tokenizer_config.json",
                           "generation_config.json", "preprocessor_config.json"}) {
    const DamagedModel model(package);
    model.edit_bytes(name, [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
    expect_refused(model, 3, {name});
    EXPECT_EQ(run_hexlm({"tokenize", model.path(), "--text", "a"}).code, 3) << name;
  }
  // A template that was changed on purpose.
  const DamagedModel model(package);
  write_test_file(model.file("chat_template.jinja"), "{{ messages[0].content }}");
  expect_refused(model, 3, {"chat_template.jinja", "hint: ", "--no-verify"});
  EXPECT_EQ(run_hexlm({"run", model.path(), "Once", "--no-verify", "-n", "1"}).code, 0);
  EXPECT_EQ(run_hexlm({"tokenize", model.path(), "--text", "Once", "--no-verify"}).code, 0);
}

TEST(Inspect, SaysWhatWasCompared) {
  const TemporaryFolder folder;
  const std::string package = make_package(folder);
  EXPECT_THAT(run_hexlm({"inspect", package}).out, HasSubstr("checksums       match: manifest, 2 files, "));
  EXPECT_THAT(run_hexlm({"inspect", package, "--no-verify"}).out, HasSubstr("not compared (--no-verify)"));
  const Json integrity = run_hexlm({"inspect", package, "--format", "json"}).json()["integrity"];
  EXPECT_EQ(integrity["verified"], true);
  EXPECT_EQ(integrity["files"].size(), 2U);
}

TEST(BadInput, FullDiskLeavesNothing) {
  const TemporaryFolder folder;
  const std::string model = reference_checkpoint("qwen3");
  const std::string output = folder.file("output");
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"export", model, "-o", output, "--quant", "f32"},
           {"synth", model, "-o", output},
           {"logits", model, "--ids",
            "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30", "-o",
            output}}) {
    const auto result = run_hexlm(command, {.file_size_limit = 50000});
    EXPECT_EQ(result.code, 5) << command[0] << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr("error: ")) << command[0];
    EXPECT_EQ(folder.entries(), 0U) << command[0];
  }
}

}  // namespace
}  // namespace hexlm
