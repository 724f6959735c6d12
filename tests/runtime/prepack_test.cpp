#include "backends/cpu/prepack.hpp"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/json.hpp"
#include "formats/prepacked.hpp"
#include "kernels/kernels.hpp"
#include "quantization/export.hpp"
#include "runtime/tiny_model.hpp"
#include "support/temporary_folder.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

/// A package of the tiny model with its prepacked folder.
class PrepackedPackage : public testing::Test {
 protected:
  void SetUp() override {
    ExportOptions options;
    options.checkpoint = test_data("models/tiny-vl");
    options.package = folder_.file("package");
    options.threads = 2;
    options.linear = *parse_codec("w4g64a");
    options.lm_head = *parse_codec("w8g64");
    options.embedding = *parse_codec("w8g64");
    const auto plan = plan_export(options);
    ASSERT_TRUE(plan) << plan.error().message;
    const auto made = export_package(options, *plan, nullptr);
    ASSERT_TRUE(made) << made.error().message;
    plain_ = logits();
    const auto packed = add();
    ASSERT_TRUE(packed) << packed.error().message;
    result_ = *packed;
  }

  std::string package() const { return folder_.file("package"); }
  std::string data_file() const { return package() + "/prepacked/cpu.safetensors"; }
  std::string manifest_file() const { return package() + "/prepacked/manifest.json"; }

  Result<PrepackResult> add(std::string_view target = "cpu-x86-vnni") const {
    HEXLM_ASSIGN(const auto model, Model::open(package(), {2, true, {}, false}));
    const Graph* const graphs[] = {model->graph().get(), model->vision_graph().get()};
    return prepack(std::dynamic_pointer_cast<const Package>(model->weights()), graphs, target, 2, nullptr);
  }

  Result<std::vector<float>> try_logits(Precision precision = Precision::normal, bool verify = true) const {
    HEXLM_ASSIGN(const auto model, Model::open(package(), {2, verify, {}, false}));
    SessionOptions options;
    options.threads = 2;
    options.precision = precision;
    options.context = 64;
    HEXLM_ASSIGN(const auto session, Session::create(model, options));
    const std::vector<int32_t> tokens = {17, 300, 42, 5, 1000};
    HEXLM_ASSIGN(const std::span<const float> last, session->forward_last(std::span(tokens)));
    return std::vector<float>(last.begin(), last.end());
  }
  std::vector<float> logits(Precision precision = Precision::normal, bool verify = true) const {
    const auto result = try_logits(precision, verify);
    EXPECT_TRUE(result) << result.error().message;
    return result ? *result : std::vector<float>();
  }
  void expect_refusal(const std::string& message, Precision precision = Precision::normal) const {
    const auto result = try_logits(precision);
    ASSERT_FALSE(result) << message;
    EXPECT_EQ(result.error().code, ErrorCode::bad_input);
    EXPECT_THAT(result.error().message, HasSubstr(message));
  }

  /// Changes a byte in the middle of a tensor of a file.
  void damage(const std::string& file, const std::string& tensor) const {
    size_t offset = 0;
    {
      const auto opened = SafetensorsFile::open(file);
      ASSERT_TRUE(opened);
      const TensorView* view = opened->find(tensor);
      ASSERT_NE(view, nullptr) << tensor;
      offset =
          static_cast<size_t>(view->bytes.data() - opened->file().bytes().data()) + view->bytes.size() / 2;
    }
    flip(file, offset);
  }
  void flip(const std::string& file, uint64_t offset) const {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const auto byte = static_cast<char>(stream.get() ^ 0x55);
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(byte);
  }
  void edit_manifest(const std::function<void(Json&)>& change) const {
    Json json = *read_json(manifest_file());
    change(json);
    write_test_file(manifest_file(), seal_manifest(std::move(json)));
  }

  TemporaryFolder folder_;
  std::vector<float> plain_;
  PrepackResult result_;
};

constexpr const char* projection = "layers.3.mlp.down_proj.weight";

TEST_F(PrepackedPackage, GivesTheSameBitsOnEveryKernelSet) {
  EXPECT_EQ(result_.layout, packed_layout);
  EXPECT_GT(result_.tensors, 40);
  EXPECT_EQ(result_.bytes, std::filesystem::file_size(data_file()));
  EXPECT_EQ(logits(), plain_);
  for (const KernelSet* set : kernel_sets()) {
    if (!set->supported(cpu_features())) continue;
    SCOPED_TRACE(set->name);
    ::setenv("HEXLM_ISA", set->name, 1);
    const std::vector<float> mapped = logits();
    std::filesystem::rename(package() + "/prepacked", package() + "/aside");
    EXPECT_EQ(mapped, logits());
    std::filesystem::rename(package() + "/aside", package() + "/prepacked");
    ::unsetenv("HEXLM_ISA");
  }
}

TEST_F(PrepackedPackage, HoldsTheSameBytesForEveryTarget) {
  const std::string first = read_test_file(data_file());
  for (const std::string_view target : prepack_targets) {
    std::filesystem::remove_all(package() + "/prepacked");
    ASSERT_TRUE(add(target)) << target;
    EXPECT_EQ(read_test_file(data_file()), first) << target;
  }
  const auto unknown = add("cpu-riscv");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::usage);
}

TEST_F(PrepackedPackage, IsReadFromItsFileInsteadOfBeingPacked) {
  const auto model = Model::open(package(), {2, true, {}, false});
  ASSERT_TRUE(model);
  const auto weights = (*model)->weights();
  EXPECT_EQ(weights->packed_layout(), packed_layout);
  EXPECT_NE(weights->find_packed(projection), nullptr);
  EXPECT_EQ(weights->find_packed("layers.0.input_layernorm.weight"), nullptr);
  damage(data_file(), std::string(projection) + ".codes");
  EXPECT_NE(logits(Precision::normal, false), plain_);
}

TEST_F(PrepackedPackage, IsComparedWithItsChecksumsBeforeItIsUsed) {
  damage(data_file(), std::string(projection) + ".scales");
  expect_refusal(fmt::format("cpu.safetensors: tensor '{}'", projection));
  // Float activations read the stored form, which is whole.
  EXPECT_FALSE(logits(Precision::high).empty());
  const auto model = Model::open(package(), {2, true, {}, false});
  ASSERT_TRUE(model);
  EXPECT_FALSE((*model)->package()->verify_deferred(2));
}

TEST_F(PrepackedPackage, IsWholeToTheLastBit) {
  const uint64_t size = std::filesystem::file_size(manifest_file());
  for (uint64_t at = 0; at < size; at += 97) {
    flip(manifest_file(), at);
    const auto opened = Package::open(package(), true, 1);
    flip(manifest_file(), at);
    ASSERT_FALSE(opened) << at;
    ASSERT_EQ(opened.error().code, ErrorCode::bad_input);
  }
  std::vector<uint64_t> places = {0, 9, 500};
  {
    const auto file = SafetensorsFile::open(data_file());
    ASSERT_TRUE(file);
    places.push_back(file->header().size() - 1);
    for (const TensorView& tensor : file->tensors()) {
      if (tensor.name.starts_with(padding_prefix))
        places.push_back(static_cast<uint64_t>(tensor.bytes.data() - file->file().bytes().data()));
    }
  }
  for (const uint64_t at : places) {
    flip(data_file(), at);
    const auto opened = Package::open(package(), true, 1);
    flip(data_file(), at);
    ASSERT_FALSE(opened) << at;
    EXPECT_THAT(opened.error().message, HasSubstr("cpu.safetensors"));
  }
  EXPECT_TRUE(Package::open(package(), true, 1)) << "restored";
}

TEST_F(PrepackedPackage, LeavesTheStoredFormToThoseWhoReadIt) {
  damage(package() + "/weights.safetensors", std::string(projection) + ".codes");
  EXPECT_EQ(logits(), plain_);
  expect_refusal(fmt::format("weights.safetensors: tensor '{}'", projection), Precision::high);
  const auto model = Model::open(package(), {2, true, {}, false});
  ASSERT_TRUE(model);
  EXPECT_FALSE((*model)->package()->verify_deferred(2));
  // A table is read in its stored form too.
  damage(package() + "/weights.safetensors", "embed_tokens.weight.codes");
  expect_refusal("embed_tokens.weight");
}

TEST_F(PrepackedPackage, InAnotherLayoutIsPackedAtLoad) {
  edit_manifest([](Json& json) { json["layout"] = "tiles32x8"; });
  EXPECT_EQ(logits(), plain_);
  damage(data_file(), std::string(projection) + ".codes");
  EXPECT_EQ(logits(), plain_);
  // What is read then is compared as ever.
  damage(package() + "/weights.safetensors", std::string(projection) + ".codes");
  expect_refusal(projection);
}

TEST_F(PrepackedPackage, OfOtherWeightsIsRefused) {
  edit_manifest([](Json& json) { json["tensors"][0]["made_from"] = "0123456789abcdef"; });
  expect_refusal("was packed from a weight with checksum 0123456789abcdef");
  edit_manifest([](Json& json) { json["tensors"][0]["name"] = "layers.99.mlp.up_proj.weight"; });
  expect_refusal("the package has no such weight");
}

TEST_F(PrepackedPackage, WithABrokenManifestOrFileIsRefused) {
  const std::string sound = read_test_file(manifest_file());
  const std::vector<std::pair<std::function<void(Json&)>, const char*>> cases = {
      {[](Json& json) { json.erase("layout"); }, "layout: is missing"},
      {[](Json& json) { json["more"] = 1; }, "more: is unknown"},
      {[](Json& json) { json["format_version"] = 2; }, "format_version: expected 1, got 2"},
      {[](Json& json) { json["target"] = 3; }, "target: expected a text"},
      {[](Json& json) { json["file"]["bytes"] = -1; }, "bytes: expected an integer"},
      {[](Json& json) { json["file"]["bytes"] = 5; }, "the manifest says 5 bytes"},
      {[](Json& json) { json["file"]["checksum"] = "xyz"; }, "checksum: expected 16"},
      {[](Json& json) { json["tensors"] = 0; }, "tensors: expected an array"},
      {[](Json& json) { json["tensors"][1] = json["tensors"][0]; }, "is there twice"},
      {[](Json& json) { json["tensors"][0]["offsets"] = 1; }, "offsets: expected true or false"},
      {[](Json& json) { json["tensors"][0]["code_bytes"] = 64; }, "is not in the file as the manifest says"},
      {[](Json& json) { json["tensors"][0]["offsets"] = !json["tensors"][0]["offsets"].get<bool>(); },
       "offsets"}};
  for (const auto& [change, message] : cases) {
    SCOPED_TRACE(message);
    edit_manifest(change);
    expect_refusal(message);
    write_test_file(manifest_file(), sound);
  }
  std::string edited = sound;
  edited[edited.find("cpu-x86")] = 'C';
  write_test_file(manifest_file(), edited);
  expect_refusal("damaged or edited");
  write_test_file(manifest_file(), sound.substr(0, sound.size() / 2));
  expect_refusal("manifest.json");
  write_test_file(manifest_file(), sound);
  std::filesystem::resize_file(data_file(), 100);
  expect_refusal("cpu.safetensors");
  // Without its manifest, as when prepacking was stopped, the folder counts for nothing.
  std::filesystem::remove(manifest_file());
  EXPECT_EQ(logits(), plain_);
}

TEST(Prepack, OfFloatWeightsIsRefused) {
  const TemporaryFolder folder;
  ExportOptions options;
  options.checkpoint = test_data("reference/qwen2_tied/checkpoint");
  options.package = folder.file("package");
  options.linear = options.lm_head = options.embedding = *parse_codec("f16");
  const auto plan = plan_export(options);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_TRUE(export_package(options, *plan, nullptr));
  const auto model = Model::open(options.package, {1, true, {}, false});
  ASSERT_TRUE(model);
  const Graph* const graphs[] = {(*model)->graph().get()};
  const auto made = prepack(std::dynamic_pointer_cast<const Package>((*model)->weights()), graphs,
                            "cpu-x86-vnni", 1, nullptr);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::unsupported);
  EXPECT_THAT(made.error().message, HasSubstr("nothing to prepack"));
}

}  // namespace
}  // namespace hexlm
