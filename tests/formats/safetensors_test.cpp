#include "formats/safetensors.hpp"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <utility>

#include "formats/json.hpp"
#include "formats/safetensors_header.hpp"
#include "formats/safetensors_text.hpp"
#include "support/temporary_folder.hpp"
#include "support/test_data.hpp"

namespace hexlm {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

/// The message that a file of this header and data is refused with; empty when it is accepted.
std::string refusal(const std::string& header, const std::string& data = {}) {
  const std::string bytes = safetensors_bytes(header, data);
  const auto content = parse_safetensors(std::as_bytes(std::span(bytes)), "dir/m.safetensors");
  if (content) return {};
  EXPECT_EQ(content.error().code, ErrorCode::bad_input);
  EXPECT_THAT(content.error().message, HasSubstr("dir/m.safetensors"));
  EXPECT_EQ(content.error().message.find('\n'), std::string::npos) << content.error().message;
  return content.error().message;
}

TEST(Safetensors, JudgesEveryCaseAsListed) {
  const auto cases = read_json(test_data("safetensors_cases/cases.json"));
  ASSERT_TRUE(cases);
  std::set<std::string> judged;
  for (const Json& item : *cases) {
    const auto name = item.at("file").get<std::string>();
    const std::string path = test_data("safetensors_cases/" + name);
    ASSERT_EQ(std::filesystem::file_size(path), item.at("bytes").get<uint64_t>());
    const auto file = SafetensorsFile::open(path);
    const bool expected = item.at("expect") == "accept";
    EXPECT_EQ(file.has_value(), expected)
        << name << ": " << item.at("why") << (file ? "" : ": " + file.error().message);
    if (!file) {
      EXPECT_THAT(file.error().message, HasSubstr(path));
    }
    judged.insert(name);
  }
  EXPECT_EQ(judged.size(), 30U);
}

TEST(Safetensors, ReadsContent) {
  const auto file = SafetensorsFile::open(test_data("safetensors_cases/good/nan_inf.safetensors"));
  ASSERT_TRUE(file);
  const TensorView* tensor = file->find("a");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::f32);
  EXPECT_EQ(tensor->shape, (std::vector<int64_t>{4}));
  ASSERT_EQ(tensor->bytes.size(), 16U);
  uint32_t second = 0;
  std::memcpy(&second, tensor->bytes.data() + 4, 4);
  EXPECT_EQ(second, 0x7f800000U);
  EXPECT_EQ(file->find("b"), nullptr);

  const auto metadata = SafetensorsFile::open(test_data("safetensors_cases/good/metadata_only.safetensors"));
  ASSERT_TRUE(metadata);
  EXPECT_EQ(metadata->metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"x", "\xc3\xa9"}}));

  const auto unicode = SafetensorsFile::open(test_data("safetensors_cases/good/unicode_name.safetensors"));
  ASSERT_TRUE(unicode);
  EXPECT_NE(unicode->find("\xe5\xb1\x82.0.\xe6\x9d\x83\xe9\x87\x8d"), nullptr);

  const auto unsorted =
      SafetensorsFile::open(test_data("safetensors_cases/good/unsorted_header.safetensors"));
  ASSERT_TRUE(unsorted);
  EXPECT_EQ(unsorted->tensors().front().name, "a");  // data order
}

TEST(Safetensors, ViewsOutliveMoves) {
  auto file = SafetensorsFile::open(test_data("safetensors_cases/good/scalar.safetensors"));
  ASSERT_TRUE(file);
  const SafetensorsFile moved = std::move(*file);
  const TensorView* tensor = moved.find("a");
  ASSERT_NE(tensor, nullptr);
  float value = 0;
  std::memcpy(&value, tensor->bytes.data(), 4);
  EXPECT_EQ(value, 1.5F);
  EXPECT_TRUE(tensor->shape.empty());
  EXPECT_EQ(tensor->elements(), 1);
}

TEST(Safetensors, AcceptsEveryDtype) {
  const std::vector<std::pair<std::string, uint64_t>> bytes_of_eight = {
      {"BOOL", 8},    {"U8", 8},   {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16},
      {"U16", 16},    {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},
      {"F32", 32},    {"C64", 64}, {"F64", 64},    {"I64", 64},    {"U64", 64}};
  for (const auto& [dtype, bytes] : bytes_of_eight) {
    const std::string entry = header_of({header_entry("t", dtype, "2, 4", 0, bytes)});
    EXPECT_EQ(refusal(entry, std::string(bytes, 'x')), "") << dtype;
    const std::string wrong = header_of({header_entry("t", dtype, "2, 4", 0, bytes + 1)});
    EXPECT_THAT(refusal(wrong, std::string(bytes + 1, 'x')),
                HasSubstr(fmt::format("{} [2, 4] needs {} bytes, data_offsets [0, {}] give {}", dtype, bytes,
                                      bytes + 1, bytes + 1)));
  }
}

TEST(Safetensors, MessagesNameTensorAndBothValues) {
  EXPECT_THAT(
      refusal(header_of({header_entry("w", "F32", "2,2", 0, 16)}), std::string(12, 'x')),
      HasSubstr("tensor 'w': ends at data offset 16, but the file has only 12 of 16 data bytes: truncated"));
  EXPECT_THAT(refusal(header_of({header_entry("w", "U8", "2", 0, 2)}), "xyz"),
              HasSubstr("2 data bytes expected, got 3: 1 bytes belong to no tensor"));
  EXPECT_THAT(
      refusal(header_of({header_entry("a", "U8", "2", 0, 2), header_entry("b", "U8", "2", 3, 5)}), "vwxyz"),
      HasSubstr("tensor 'b': begins at data offset 3, expected 2, where a ends: hole"));
  EXPECT_THAT(
      refusal(header_of({header_entry("a", "U8", "2", 0, 2), header_entry("b", "U8", "2", 1, 3)}), "xyz"),
      HasSubstr("tensor 'b': begins at data offset 1, expected 2, where a ends: overlap"));
  EXPECT_THAT(
      refusal(header_of({header_entry("a", "U8", "1", 0, 1), header_entry("a", "U8", "1", 1, 2)}), "xy"),
      HasSubstr("tensor 'a': appears twice"));
  EXPECT_THAT(refusal(header_of({header_entry("a", "F31", "1", 0, 1)}), "x"),
              HasSubstr("dtype 'F31' is unknown"));
  EXPECT_THAT(refusal(header_of({header_entry("a", "U8", "1", 2, 1)}), "x"), HasSubstr("[2, 1] end before"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
              HasSubstr("'dtype' appears twice"));
}

TEST(Safetensors, RefusesMalformedHeaders) {
  for (const char* header :
       {R"({"a":1})", R"({"a":[]})", R"({"a":{}})", R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})",
        R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})",
        R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})",
        R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})",
        R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})",
        R"({"a":{"dtype":"U8","shape":[1],"data_offsets":["0","1"]}})",
        R"({"a":{"dtype":"U8","shape":[1],"data_offsets":{}}})", R"({"a":{"dtype":"U8","shape":[1]}})",
        R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", R"({"__metadata__":1})",
        R"({"__metadata__":{"a":1}})", R"({"__metadata__":{},"__metadata__":{}})",
        R"({"__metadata__":{"a":"1","a":"2"}})", " {}", "null", "{} {}"}) {
    EXPECT_NE(refusal(header, "x"), "") << header;
  }
}

TEST(Safetensors, RefusesSizesThatOverflow) {
  for (const char* shape : {"18446744073709551615", "9223372036854775808", "4611686018427387904,4",
                            "4294967296,4294967296", "0,9223372036854775807,9223372036854775807",
                            "9223372036854775807,3,0", "1152921504606846976,2", "2305843009213693952"}) {
    EXPECT_THAT(refusal(header_of({header_entry("a", "F32", shape, 0, 0)})),
                AnyOf(HasSubstr("overflows"), HasSubstr("exceeds 2^63-1")))
        << shape;
  }
  EXPECT_EQ(refusal(header_of({header_entry("a", "F32", "0,9223372036854775807", 0, 0)})), "");
}

TEST(Safetensors, RefusesHeaderLengthsBeyondTheFileAndTheFormat) {
  const auto with_length = [](uint64_t length) {
    std::string bytes = safetensors_bytes("{}", "");
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xff);
    const auto content = parse_safetensors(std::as_bytes(std::span(bytes)), "x");
    return content ? std::string() : content.error().message;
  };
  EXPECT_EQ(with_length(2), "");
  for (const uint64_t length : {3, 8, 9, 10, 11, 100'000'000}) {
    EXPECT_THAT(with_length(length),
                HasSubstr(fmt::format("header length {}, but only 2 bytes follow", length)));
  }
  for (const uint64_t length : {uint64_t{0}, uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}}) {
    EXPECT_THAT(with_length(length),
                HasSubstr(fmt::format("header length {}, expected 1 to 100000000", length)));
  }
}

TEST(Safetensors, TrailingSpacesInTheHeaderAreFine) {
  EXPECT_EQ(refusal("{}"), "");
  EXPECT_EQ(refusal("{}      "), "");
  EXPECT_EQ(refusal(header_of({header_entry("a", "U8", "1", 0, 1)}).append("   "), "x"), "");
}

TEST(Safetensors, GitLfsPointersAreNamed) {
  const auto file = SafetensorsFile::open(test_data("safetensors_cases/bad/lfs_pointer.safetensors"));
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("Git LFS pointer"));
  EXPECT_THAT(file.error().hint, HasSubstr("git lfs pull"));
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
  const std::string whole = read_test_file(test_data("safetensors_cases/good/all_dtypes.safetensors"));
  ASSERT_EQ(whole.size(), 743U);
  for (size_t size = 0; size < whole.size(); ++size) {
    // A copy of the exact size, so that a memory checker sees a read beyond the end.
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(parse_safetensors(std::as_bytes(std::span(part)), "x")) << size;
  }
}

// Every single-byte change either is refused or leaves a file whose views lie within it.
TEST(Safetensors, NoChangedByteLeadsOutOfTheFile) {
  const std::string whole = read_test_file(test_data("safetensors_cases/good/all_dtypes.safetensors"));
  for (size_t position = 0; position < whole.size(); ++position) {
    for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, 0x0f, 0xff}) {
      std::string changed = whole;
      changed[position] = static_cast<char>(changed[position] ^ flip);
      const auto content = parse_safetensors(std::as_bytes(std::span(changed)), "x");
      if (!content) continue;
      for (const TensorView& tensor : content->tensors) {
        const auto* begin = reinterpret_cast<const char*>(tensor.bytes.data());
        ASSERT_GE(begin, changed.data());
        ASSERT_LE(begin + tensor.bytes.size(), changed.data() + changed.size());
        ASSERT_EQ(tensor.bytes.size() * 8,
                  static_cast<uint64_t>(tensor.elements()) * static_cast<uint64_t>(bit_width(tensor.dtype)));
      }
    }
  }
}

TEST(Safetensors, LargeHeadersOpenFast) {
  constexpr size_t count = 40'000;
  std::vector<std::string> entries;
  entries.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    entries.push_back(
        header_entry(fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", i / 512, i % 512), "BF16",
                     "1,1", 2 * i, 2 * i + 2));
  }
  const std::string bytes = safetensors_bytes(header_of(entries), std::string(2 * count, 'x'));
  const auto begin = std::chrono::steady_clock::now();
  const auto content = parse_safetensors(std::as_bytes(std::span(bytes)), "x");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(content);
  EXPECT_EQ(content->tensors.size(), count);
  EXPECT_LT(seconds.count(), 10);  // tens of milliseconds; a quadratic step takes far longer
}

}  // namespace
}  // namespace hexlm
