#include "formats/package.hpp"

#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "support/temporary_folder.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

/// A package of random bytes: what a writer does, without quantizing anything.
class PackageTest : public testing::Test {
 protected:
  void SetUp() override {
    add("embed_tokens.weight", "weights.safetensors", "w8g32", {50, 96});
    add("layers.0.up.weight", "weights.safetensors", "w4g64a", {33, 100});
    add("layers.0.down.weight", "weights.safetensors", "w3", {7, 33});
    add("norm.weight", "weights.safetensors", "f32", {33});
    add("scale", "weights.safetensors", "f16", {});
    add("visual.proj.weight", "vision.safetensors", "bf16", {4, 3, 2, 2});
    manifest_.architecture = "qwen3";
    manifest_.configuration = {{"model_type", "qwen3"}, {"nested", {{"a", {1, 2, 3}}}}};
    manifest_.provenance = {{"argv", {"hexlm", "export"}}};
    write_package(manifest_);
  }

  void add(const std::string& name, const std::string& file, const std::string& codec,
           std::vector<int64_t> shape) {
    manifest_.tensors.push_back({name, file, *parse_codec(codec), std::move(shape), 0, 0, 0.125});
  }

  void write_package(Manifest& manifest) {
    std::mt19937 random(7);
    manifest.files.clear();
    for (const char* file : {"weights.safetensors", "vision.safetensors"}) {
      std::vector<TensorPlan> plan;
      std::vector<std::byte> bytes;
      std::vector<size_t> sizes;
      for (PackageTensor& tensor : manifest.tensors) {
        if (tensor.file != file) continue;
        Hasher hasher;
        tensor.stored_bytes = 0;
        for (const TensorPlan& part : tensor_plans(tensor)) {
          size_t size = static_cast<size_t>(bit_width(part.dtype)) / 8;
          for (const int64_t dim : part.shape) size *= static_cast<size_t>(dim);
          const size_t begin = bytes.size();
          for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(random()));
          hasher.update(std::span(bytes).subspan(begin));
          tensor.stored_bytes += size;
          plan.push_back(part);
          sizes.push_back(size);
        }
        tensor.checksum = hasher.digest();
      }
      auto writer = SafetensorsWriter::create(folder_.file(file), plan, {}, package_alignment);
      ASSERT_TRUE(writer) << writer.error().message;
      size_t offset = 0;
      for (const size_t size : sizes) {
        ASSERT_TRUE(writer->write(std::span(bytes).subspan(offset, size)));
        offset += size;
      }
      ASSERT_TRUE(writer->commit());
      manifest.files.push_back({file, writer->file_bytes(), writer->header_checksum()});
    }
    write_manifest(seal_manifest(to_json(manifest)));
  }

  void write_manifest(const std::string& text) const { write_test_file(folder_.file("manifest.json"), text); }

  /// The error that opening fails with after `change` was applied to the manifest.
  Error refusal_after(const std::function<void(Json&)>& change, bool verify = false) const {
    Json json = to_json(manifest_);
    change(json);
    write_manifest(seal_manifest(std::move(json)));
    const auto package = Package::open(folder_.path(), verify, 2);
    EXPECT_FALSE(package);
    if (package) return {};
    EXPECT_EQ(package.error().code, ErrorCode::bad_input) << package.error().message;
    EXPECT_EQ(package.error().message.find('\n'), std::string::npos);
    return package.error();
  }

  TemporaryFolder folder_;
  Manifest manifest_;
};

TEST_F(PackageTest, OpensAndFindsEveryWeight) {
  EXPECT_TRUE(Package::is_package(folder_.path()));
  for (const int threads : {1, 3}) {
    const auto opened = Package::open(folder_.path(), true, threads);
    ASSERT_TRUE(opened) << opened.error().message;
    const Package& package = **opened;
    EXPECT_EQ(package.manifest().architecture, "qwen3");
    EXPECT_EQ(package.origin(), folder_.path());
    for (const PackageTensor& tensor : manifest_.tensors) {
      EXPECT_TRUE(package.contains(tensor.name));
      const auto weight = package.find(tensor.name);
      ASSERT_TRUE(weight) << weight.error().message;
      EXPECT_EQ(weight->name, tensor.name);
      EXPECT_EQ(weight->codec, tensor.codec);
      EXPECT_EQ(weight->shape, tensor.shape);
      EXPECT_EQ(weight->stored_bytes(), tensor.stored_bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(weight->data.bytes.data()) % package_alignment, 0U);
      EXPECT_TRUE(package.verify(tensor));
      package.release(*weight);
    }
    const auto weight = package.find("layers.0.up.weight");
    EXPECT_EQ(weight->data.shape, (std::vector<int64_t>{33, 50}));
    EXPECT_EQ(weight->scales.shape, (std::vector<int64_t>{33, 2}));
    EXPECT_EQ(weight->offsets.shape, (std::vector<int64_t>{33, 2}));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(weight->scales.bytes.data()) % package_alignment, 0U);
    EXPECT_TRUE(package.find("layers.0.down.weight")->offsets.bytes.empty());
    const auto missing = package.find("layers.0.up");
    ASSERT_FALSE(missing);
    EXPECT_THAT(missing.error().message, HasSubstr("'layers.0.up' is missing"));
    EXPECT_THAT(missing.error().hint, HasSubstr("'layers.0.up.weight'"));
  }
}

TEST_F(PackageTest, ManifestRoundTrips) {
  const auto parsed = parse_manifest(seal_manifest(to_json(manifest_)), "m", true);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(to_json(*parsed).dump(), to_json(manifest_).dump());
  EXPECT_EQ(parsed->configuration, manifest_.configuration);
  EXPECT_EQ(parsed->tensors[1].checksum, manifest_.tensors[1].checksum);
}

TEST_F(PackageTest, AFlippedBitIsFoundAndTheTensorNamed) {
  const std::string path = folder_.file("weights.safetensors");
  const std::string whole = read_test_file(path);
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file);
  for (const PackageTensor& tensor : manifest_.tensors) {
    if (tensor.file != "weights.safetensors") continue;
    for (const TensorPlan& part : tensor_plans(tensor)) {
      const TensorView* stored = file->find(part.name);
      ASSERT_NE(stored, nullptr);
      const auto begin = static_cast<size_t>(stored->bytes.data() - file->file().bytes().data());
      std::string damaged = whole;
      damaged[begin + stored->bytes.size() / 2] ^= 0x10;
      const std::string replacement = folder_.file("damaged");  // not over the mapped file
      write_test_file(replacement, damaged);
      std::filesystem::rename(replacement, path);
      EXPECT_TRUE(Package::open(folder_.path(), false, 2)) << "without verification the bytes are not read";
      const auto package = Package::open(folder_.path(), true, 2);
      ASSERT_FALSE(package) << part.name;
      EXPECT_EQ(package.error().code, ErrorCode::bad_input);
      EXPECT_THAT(package.error().message, HasSubstr("weights.safetensors: tensor '" + tensor.name + "'"));
      EXPECT_THAT(package.error().message, HasSubstr(to_hex(tensor.checksum)));
    }
  }
}

TEST_F(PackageTest, ANewerFormatIsRefusedNamingBothVersions) {
  const Error error = refusal_after([](Json& json) {
    json["format_version"] = 2;
    json["unheard_of"] = true;  // the version is judged first
  });
  EXPECT_THAT(error.message, HasSubstr("format version 2"));
  EXPECT_THAT(error.message, HasSubstr("up to version 1"));
  EXPECT_THAT(refusal_after([](Json& json) { json["format_version"] = 18446744073709551615U; }).message,
              HasSubstr("18446744073709551615"));
  for (const Json& version : {Json(0), Json(-1), Json("1"), Json(1.5), Json(nullptr)}) {
    EXPECT_THAT(refusal_after([&](Json& json) { json["format_version"] = version; }).message,
                HasSubstr("format_version: expected"));
  }
  refusal_after([](Json& json) { json.erase("format_version"); });
}

TEST_F(PackageTest, MissingUnknownAndMistypedFieldsAreNamed) {
  for (const char* key : {"architecture", "configuration", "provenance", "files", "tensors"}) {
    EXPECT_THAT(refusal_after([&](Json& json) { json.erase(key); }).message,
                HasSubstr(std::string(key) + ": is missing"));
    EXPECT_THAT(refusal_after([&](Json& json) { json[key] = 5; }).message,
                HasSubstr(std::string(key) + ": expected"));
  }
  EXPECT_THAT(refusal_after([](Json& json) { json["achitecture"] = "x"; }).message,
              HasSubstr("achitecture: is unknown; the nearest field is architecture"));
  for (const char* key : {"name", "file", "codec", "shape", "stored_bytes", "checksum", "relative_error"}) {
    EXPECT_THAT(refusal_after([&](Json& json) { json["tensors"][2].erase(key); }).message,
                HasSubstr(std::string("tensors[2].") + key + ": is missing"));
    EXPECT_THAT(refusal_after([&](Json& json) { json["tensors"][2][key] = true; }).message,
                HasSubstr(std::string("tensors[2].") + key));
  }
}

TEST_F(PackageTest, ImpossibleTensorFieldsAreRefused) {
  const auto set = [&](const char* key, const Json& value) {
    return refusal_after([&](Json& json) { json["tensors"][1][key] = value; }).message;
  };
  EXPECT_THAT(set("name", "norm.weight"), HasSubstr("'norm.weight' is listed twice"));
  EXPECT_THAT(set("name", "__padding.x"), HasSubstr("reserved"));
  for (const char* file :
       {"../weights.safetensors", "/tmp/weights.safetensors", "a/b.safetensors", "weights.bin", ""}) {
    EXPECT_THAT(set("file", file), HasSubstr("tensors[1].file")) << file;
  }
  EXPECT_THAT(set("codec", "w4g64x"), HasSubstr("'w4g64x' is no codec"));
  EXPECT_THAT(set("codec", "w4g64"), HasSubstr("stored_bytes"));  // its offsets would be left over
  EXPECT_THAT(set("shape", {33}), HasSubstr("stores matrices"));
  EXPECT_THAT(set("shape", {int64_t{1} << 62, 0}), HasSubstr("stores matrices"));
  EXPECT_THAT(set("shape", {-33, 100}), HasSubstr("tensors[1].shape"));
  EXPECT_THAT(set("shape", {33.0, 100}), HasSubstr("tensors[1].shape"));
  EXPECT_THAT(set("shape", {int64_t{1} << 40, int64_t{1} << 40}), HasSubstr("overflows"));
  EXPECT_THAT(set("shape", {int64_t{1} << 30, int64_t{1} << 30}), HasSubstr("overflows"));
  EXPECT_THAT(set("shape", {33, 101}), HasSubstr("stored_bytes"));
  for (const char* digits :
       {"", "12", "00000000000000AB", "0x000000000000ab", "g000000000000000", "00000000000000001"}) {
    EXPECT_THAT(set("checksum", digits), HasSubstr("tensors[1].checksum")) << digits;
  }
  EXPECT_THAT(set("relative_error", -0.5), HasSubstr("relative_error"));
  EXPECT_THAT(set("relative_error", nullptr), HasSubstr("relative_error"));
}

TEST_F(PackageTest, ManifestAndFilesMustAgree) {
  EXPECT_THAT(refusal_after([](Json& json) { json["tensors"].erase(3); }).message,
              HasSubstr("weights.safetensors: tensor 'norm.weight': is in the file but not in the manifest"));
  EXPECT_THAT(refusal_after([](Json& json) { json["tensors"][3]["name"] = "other"; }).message,
              HasSubstr("weights.safetensors: tensor 'other': is listed in the manifest but missing"));
  EXPECT_THAT(refusal_after([](Json& json) { json["tensors"][3]["file"] = "vision.safetensors"; }).message,
              HasSubstr("vision.safetensors: tensor 'norm.weight'"));
  EXPECT_THAT(refusal_after([](Json& json) { json["tensors"][3]["shape"] = {11, 3}; }).message,
              HasSubstr("tensor 'norm.weight': the manifest says F32 [11, 3], the file F32 [33]"));
  EXPECT_THAT(refusal_after([](Json& json) { json["tensors"][5]["codec"] = "f16"; }).message,
              HasSubstr("the manifest says F16 [4, 3, 2, 2], the file BF16 [4, 3, 2, 2]"));
  EXPECT_THAT(refusal_after([](Json& json) { json["tensors"][3]["file"] = "none.safetensors"; }).message,
              HasSubstr("'none.safetensors' is not among the manifest's files"));
  EXPECT_THAT(
      refusal_after([](Json& json) { json["tensors"][0]["checksum"] = "0123456789abcdef"; }, true).message,
      HasSubstr("the manifest has checksum 0123456789abcdef"));
}

TEST_F(PackageTest, ATensorMayNotBelongToTwoWeights) {
  // "norm.weight" as a float weight, and a weight "x" whose codes are the tensor of that name.
  Manifest manifest;
  manifest.architecture = "a";
  manifest.configuration = Json::object();
  manifest.provenance = Json::object();
  manifest.tensors.push_back({"x", "weights.safetensors", *parse_codec("w8"), {4, 4}, 0, 0, 0});
  manifest.tensors.push_back({"x.scales", "weights.safetensors", *parse_codec("f16"), {4, 1}, 8, 0, 0});
  manifest_ = manifest;
  manifest_.tensors.pop_back();
  write_package(manifest_);
  manifest_.tensors.push_back(manifest.tensors.back());
  EXPECT_THAT(refusal_after([](Json&) {}).message, HasSubstr("tensor 'x.scales': belongs to two weights"));
}

TEST_F(PackageTest, UnalignedTensorsAreRefused) {
  Manifest manifest = manifest_;
  manifest.tensors = {{"a", "weights.safetensors", *parse_codec("f16"), {3}, 6, 0, 0},
                      {"b", "weights.safetensors", *parse_codec("f16"), {3}, 6, 0, 0}};
  auto writer = SafetensorsWriter::create(folder_.file("weights.safetensors"),
                                          {{"a", DType::f16, {3}}, {"b", DType::f16, {3}}}, {}, 1);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->write(std::vector<std::byte>(6)));
  ASSERT_TRUE(writer->write(std::vector<std::byte>(6)));
  ASSERT_TRUE(writer->commit());
  write_manifest(seal_manifest(to_json(manifest)));
  const auto package = Package::open(folder_.path(), false, 1);
  ASSERT_FALSE(package);
  EXPECT_THAT(package.error().message, HasSubstr("expected a multiple of 128"));
}

TEST_F(PackageTest, MissingFilesAreNamed) {
  std::filesystem::remove(folder_.file("vision.safetensors"));
  EXPECT_THAT(Package::open(folder_.path(), false, 1).error().message, HasSubstr("vision.safetensors"));
  std::filesystem::remove(folder_.file("manifest.json"));
  EXPECT_FALSE(Package::is_package(folder_.path()));
  EXPECT_THAT(Package::open(folder_.path(), false, 1).error().message, HasSubstr("manifest.json"));
}

TEST(TensorPlans, NamePartsByCodec) {
  const auto names = [](const char* codec) {
    std::vector<std::string> result;
    for (const TensorPlan& plan : tensor_plans({"w", "f", *parse_codec(codec), {2, 20}, 0, 0, 0}))
      result.push_back(plan.name);
    return result;
  };
  EXPECT_EQ(names("f16"), (std::vector<std::string>{"w"}));
  EXPECT_EQ(names("w4g16s6"), (std::vector<std::string>{"w.codes", "w.group_scales", "w.scales"}));
  EXPECT_EQ(names("w4"), (std::vector<std::string>{"w.codes", "w.scales"}));
  EXPECT_EQ(names("w4g16a"), (std::vector<std::string>{"w.codes", "w.scales", "w.offsets"}));
  const auto plans = tensor_plans({"w", "f", *parse_codec("w3g16a"), {2, 20}, 0, 0, 0});
  EXPECT_EQ(plans[0].shape, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(plans[0].dtype, DType::u8);
  EXPECT_EQ(plans[1].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(plans[2].dtype, DType::f16);
}

}  // namespace
}  // namespace hexlm
