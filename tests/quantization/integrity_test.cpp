#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.hpp"
#include "formats/json.hpp"
#include "formats/package.hpp"
#include "quantization/export.hpp"
#include "support/temporary_folder.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A package of the tiny model with everything that a package can hold.
class Integrity : public testing::Test {
 protected:
  void SetUp() override {
    ExportOptions options;
    options.checkpoint = test_data("models/tiny-vl");
    options.package = folder_.file("package");
    const auto plan = plan_export(options);
    ASSERT_TRUE(plan) << plan.error().message;
    ASSERT_TRUE(export_package(options, *plan, nullptr));
  }
  std::string path(const std::string& name) const { return folder_.file("package/" + name); }
  Result<std::shared_ptr<Package>> open(bool verify = true) const {
    return Package::open(folder_.file("package"), verify, 1);
  }

  /// Opens the package with one bit of the file flipped, and puts it back.
  Error refusal_with_flipped_bit(const std::string& name, uint64_t at, int bit) const {
    flip(name, at, bit);
    const auto opened = open();
    flip(name, at, bit);
    EXPECT_FALSE(opened) << name << " byte " << at << " bit " << bit;
    return opened ? Error{} : opened.error();
  }
  void flip(const std::string& name, uint64_t at, int bit) const {
    std::fstream file(path(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    ASSERT_NE(byte, EOF);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1 << bit));
  }

  TemporaryFolder folder_;
};

TEST_F(Integrity, AFlippedBitInAnyFileIsRefused) {
  // Strides are primes, so that every column of repetitive JSON is met.
  const std::vector<std::pair<std::string, uint64_t>> files = {
      {"manifest.json", 13},      {"tokenizer.json", 997},       {"tokenizer_config.json", 7},
      {"chat_template.jinja", 7}, {"generation_config.json", 1}, {"preprocessor_config.json", 5}};
  int bit = 0;
  for (const auto& [name, stride] : files) {
    const uint64_t size = fs::file_size(path(name));
    for (uint64_t at = 0; at < size; at += stride) {
      const Error error = refusal_with_flipped_bit(name, at, bit++ % 8);
      ASSERT_EQ(error.code, ErrorCode::bad_input) << name << " byte " << at << ": " << error.message;
      ASSERT_THAT(error.message, HasSubstr(path(name))) << at;
      ASSERT_EQ(error.message.find('\n'), std::string::npos) << error.message;
    }
  }
  // The manifest's last line, its own checksum, whole.
  const uint64_t size = fs::file_size(path("manifest.json"));
  for (uint64_t at = size - 40; at < size; ++at) {
    ASSERT_EQ(refusal_with_flipped_bit("manifest.json", at, bit++ % 8).code, ErrorCode::bad_input) << at;
  }
  EXPECT_TRUE(open()) << "restored";
}

TEST_F(Integrity, AFlippedBitInTheHeaderOrThePaddingOfTheWeightsIsRefused) {
  std::vector<uint64_t> places;
  std::vector<uint64_t> padding;
  {
    const auto file = SafetensorsFile::open(path("weights.safetensors"));
    ASSERT_TRUE(file);
    for (uint64_t at = 0; at < 16; ++at) places.push_back(at);
    for (uint64_t at = 16; at < file->header().size(); at += 31) places.push_back(at);
    places.push_back(file->header().size() - 1);  // a space
    for (const TensorView& tensor : file->tensors()) {
      if (!tensor.name.starts_with(padding_prefix)) continue;
      const auto begin = static_cast<uint64_t>(tensor.bytes.data() - file->file().bytes().data());
      padding.push_back(begin);
      padding.push_back(begin + tensor.bytes.size() - 1);
    }
  }
  int bit = 0;
  for (const uint64_t at : places) {
    const Error error = refusal_with_flipped_bit("weights.safetensors", at, bit++ % 8);
    ASSERT_EQ(error.code, ErrorCode::bad_input) << "byte " << at << ": " << error.message;
    ASSERT_THAT(error.message, HasSubstr("weights.safetensors")) << at;
  }
  ASSERT_FALSE(padding.empty());
  for (const uint64_t at : padding) {
    const Error error = refusal_with_flipped_bit("weights.safetensors", at, 4);
    ASSERT_THAT(error.message, HasSubstr("weights.safetensors: tensor '__padding.")) << at;
    ASSERT_THAT(error.message, HasSubstr("is 16, padding is 0")) << at;
  }
}

TEST_F(Integrity, BothValuesAreNamed) {
  const std::string content = read_test_file(path("chat_template.jinja"));
  const std::string whole = to_hex(hash64(std::as_bytes(std::span(content))));
  const Error error = refusal_with_flipped_bit("chat_template.jinja", 3, 0);
  EXPECT_THAT(error.message, HasSubstr("the manifest has checksum " + whole));
  EXPECT_THAT(error.message, HasSubstr("the file's bytes give "));
  std::ofstream(path("generation_config.json"), std::ios::app) << "\n";
  EXPECT_THAT(open().error().message, HasSubstr("generation_config.json: the manifest says"));
  EXPECT_TRUE(open(false)) << "--no-verify takes edited files";
  fs::remove(path("generation_config.json"));
  EXPECT_THAT(open().error().message, HasSubstr("generation_config.json"));
}

TEST_F(Integrity, TheConfigurationIsTheUsersToEdit) {
  std::ofstream(path("config.json")) << "{\"threads\": 1}";
  EXPECT_TRUE(open());
  fs::remove(path("config.json"));
  EXPECT_TRUE(open());
}

TEST_F(Integrity, AManifestWithoutChecksumsIsRefused) {
  const std::string sealed = read_test_file(path("manifest.json"));
  Json manifest = *parse_json(sealed, "m");
  EXPECT_EQ(seal_manifest(manifest), sealed);
  for (const bool verify : {true, false}) {
    for (const char* field : {"checksum", "files"}) {
      Json without = manifest;
      without.erase(field);
      // Sealed anew, as only the missing list is to be seen.
      write_test_file(path("manifest.json"),
                      std::string_view(field) == "files" ? seal_manifest(without) : without.dump(1));
      EXPECT_THAT(open(verify).error().message, HasSubstr(std::string(field) + ": is missing"));
    }
  }
  Json unlisted = manifest;
  unlisted["files"].erase(unlisted["files"].size() - 1);  // the vision tower, which is written last
  write_test_file(path("manifest.json"), seal_manifest(unlisted));
  EXPECT_THAT(open().error().message, HasSubstr("'vision.safetensors' is not among the manifest's files"));
  for (const char* name : {"../tokenizer.json", "config.json", "manifest.json", "", ".."}) {
    Json other = manifest;
    other["files"][0]["name"] = name;
    write_test_file(path("manifest.json"), seal_manifest(other));
    EXPECT_THAT(open().error().message, HasSubstr("files[0].name")) << name;
  }
}

}  // namespace
}  // namespace hexlm
