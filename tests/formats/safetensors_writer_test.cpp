#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "formats/safetensors.hpp"
#include "support/temporary_folder.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

constexpr DType every_dtype[] = {DType::boolean, DType::u8,  DType::i8,      DType::f8_e5m2, DType::f8_e4m3,
                                 DType::f8_e8m0, DType::f4,  DType::f6_e2m3, DType::f6_e3m2, DType::i16,
                                 DType::u16,     DType::f16, DType::bf16,    DType::i32,     DType::u32,
                                 DType::f32,     DType::c64, DType::f64,     DType::i64,     DType::u64};

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::mt19937& random, size_t size) {
  Bytes bytes(size);
  for (std::byte& value : bytes) value = static_cast<std::byte>(random());
  return bytes;
}

struct Case {
  std::vector<TensorPlan> plan;
  std::vector<Bytes> content;
};

/// Three tensors of every dtype: a scalar (where a whole number of bytes), one of size 0, one of random size.
Case random_case(std::mt19937& random) {
  Case result;
  const auto add = [&](DType dtype, std::vector<int64_t> shape) {
    int64_t elements = 1;
    for (const int64_t dim : shape) elements *= dim;
    const int64_t bits = elements * bit_width(dtype);
    if (bits % 8 != 0) return;
    result.plan.push_back(
        {fmt::format("{}.{}", to_string(dtype), result.plan.size()), dtype, std::move(shape)});
    result.content.push_back(random_bytes(random, static_cast<size_t>(bits / 8)));
  };
  for (const DType dtype : every_dtype) {
    add(dtype, {});
    add(dtype, {static_cast<int64_t>(random() % 5), 0});
    add(dtype, {static_cast<int64_t>(random() % 40), 4, static_cast<int64_t>(random() % 9)});
  }
  std::vector<size_t> order(result.plan.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  Case shuffled;
  for (const size_t i : order) {
    shuffled.plan.push_back(result.plan[i]);
    shuffled.content.push_back(result.content[i]);
  }
  return shuffled;
}

void expect_round_trip(const Case& written, size_t alignment, size_t piece, const std::string& path) {
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"quote\"", "line\nbreak \xc3\xa9"}};
  auto writer = SafetensorsWriter::create(path, written.plan, metadata, alignment);
  ASSERT_TRUE(writer) << writer.error().message;
  for (const Bytes& content : written.content) {
    for (size_t offset = 0; offset < content.size(); offset += piece) {
      const auto status =
          writer->write(std::span(content).subspan(offset, std::min(piece, content.size() - offset)));
      ASSERT_TRUE(status) << status.error().message;
    }
  }
  const auto committed = writer->commit();
  ASSERT_TRUE(committed) << committed.error().message;

  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata(), metadata);
  size_t padding = 0;
  for (const TensorView& tensor : file->tensors()) padding += tensor.name.starts_with(padding_prefix) ? 1 : 0;
  EXPECT_EQ(file->tensors().size(), written.plan.size() + padding);
  EXPECT_EQ(padding > 0, alignment > 1);
  for (size_t i = 0; i < written.plan.size(); ++i) {
    const TensorView* tensor = file->find(written.plan[i].name);
    ASSERT_NE(tensor, nullptr) << written.plan[i].name;
    EXPECT_EQ(tensor->dtype, written.plan[i].dtype);
    EXPECT_EQ(tensor->shape, written.plan[i].shape);
    EXPECT_TRUE(std::equal(tensor->bytes.begin(), tensor->bytes.end(), written.content[i].begin(),
                           written.content[i].end()))
        << written.plan[i].name;
    const auto offset = static_cast<size_t>(tensor->bytes.data() - file->file().bytes().data());
    EXPECT_EQ(offset % std::max<size_t>(alignment, 1), 0U) << written.plan[i].name;
  }
}

TEST(SafetensorsWriter, RoundTripsEveryDtypeShapeAndAlignment) {
  const TemporaryFolder folder;
  std::mt19937 random(20240601);
  for (const size_t alignment : {0, 1, 2, 64, 128, 4096}) {
    for (const size_t piece : {size_t{1}, size_t{37}, size_t{1} << 20}) {
      expect_round_trip(random_case(random), alignment, piece, folder.file("out.safetensors"));
    }
  }
  EXPECT_EQ(folder.entries(), 1U);
}

TEST(SafetensorsWriter, NoTensorsIsAValidFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.safetensors");
  auto writer = SafetensorsWriter::create(path, {}, {{"a", "b"}}, 128);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->commit());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->tensors().empty());
}

TEST(SafetensorsWriter, OnlyEmptyTensorsNeedNoBytes) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.safetensors");
  auto writer = SafetensorsWriter::create(path, {{"a", DType::f32, {0}}, {"b", DType::u8, {3, 0}}}, {}, 128);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->commit());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 2U);
}

TEST(SafetensorsWriter, TooFewAndTooManyBytesAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.safetensors");
  auto writer = SafetensorsWriter::create(path, {{"a", DType::f32, {2}}, {"b", DType::u8, {3}}}, {}, 1);
  ASSERT_TRUE(writer);
  const Bytes bytes(100);
  const auto too_many = writer->write(std::span(bytes).first(9));
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, ErrorCode::runtime);
  EXPECT_THAT(too_many.error().message, HasSubstr("'a': 8 bytes planned, got 9"));
  ASSERT_TRUE(writer->write(std::span(bytes).first(8)));
  ASSERT_TRUE(writer->write(std::span(bytes).first(1)));
  const auto too_few = writer->commit();
  ASSERT_FALSE(too_few);
  EXPECT_THAT(too_few.error().message, HasSubstr("'b': 3 bytes planned, got 1"));
  ASSERT_TRUE(writer->write(std::span(bytes).first(2)));
  EXPECT_FALSE(writer->write(std::span(bytes).first(1)));
  ASSERT_TRUE(writer->commit());
}

TEST(SafetensorsWriter, RefusesImpossiblePlans) {
  const TemporaryFolder folder;
  const std::string path = folder.file("out.safetensors");
  const std::vector<std::vector<TensorPlan>> plans = {
      {{"a", DType::f32, {1}}, {"a", DType::u8, {1}}},
      {{"a", DType::f32, {-1}}},
      {{"a", DType::f4, {3}}},
      {{"a", DType::f32, {int64_t{1} << 40, int64_t{1} << 40}}},
      {{"a", DType::u8, {int64_t{1} << 59}},
       {"b", DType::u64, {int64_t{1} << 57}},
       {"c", DType::u64, {int64_t{1} << 57}},
       {"d", DType::u64, {int64_t{1} << 57}},
       {"e", DType::u64, {int64_t{1} << 57}},
       {"f", DType::u64, {int64_t{1} << 57}},
       {"g", DType::u64, {int64_t{1} << 57}},
       {"h", DType::u64, {int64_t{1} << 57}},
       {"i", DType::u64, {int64_t{1} << 57}}},
      {{"__metadata__", DType::u8, {1}}},
      {{"__padding.0", DType::u8, {1}}},
      {{"a\xff", DType::u8, {1}}},
  };
  for (const auto& plan : plans) EXPECT_FALSE(SafetensorsWriter::create(path, plan, {}, 128)) << plan[0].name;
  EXPECT_FALSE(SafetensorsWriter::create(path, {}, {}, 3));
  EXPECT_FALSE(SafetensorsWriter::create(path, {}, {{"a", "\xff"}}, 1));
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(SafetensorsWriter, AFullDiskIsALimitAndLeavesNothing) {
  const TemporaryFolder folder;
  void (*const handler)(int) = std::signal(SIGXFSZ, SIG_IGN);
  rlimit former = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &former), 0);
  const rlimit limited = {50'000, former.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limited), 0);
  {
    auto writer =
        SafetensorsWriter::create(folder.file("out.safetensors"), {{"a", DType::u8, {100'000}}}, {}, 128);
    ASSERT_TRUE(writer);
    const auto status = writer->write(Bytes(100'000));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::limit);
    EXPECT_FALSE(writer->commit());
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &former), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(folder.entries(), 0U);
}

}  // namespace
}  // namespace hexlm
