#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <sched.h>
#include <set>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/cpu_features.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/progress.hpp"

namespace hexlm {
namespace {

using testing::HasSubstr;

TEST(Error, NamesAreStable) {
  EXPECT_EQ(to_string(ErrorCode::runtime), "runtime");
  EXPECT_EQ(to_string(ErrorCode::usage), "usage");
  EXPECT_EQ(to_string(ErrorCode::bad_input), "bad_input");
  EXPECT_EQ(to_string(ErrorCode::unsupported), "unsupported");
  EXPECT_EQ(to_string(ErrorCode::limit), "limit");
  EXPECT_EQ(to_string(ErrorCode::device), "device");
  EXPECT_EQ(to_string(ErrorCode::verification), "verification");
  EXPECT_EQ(to_string(ErrorCode::interrupted), "interrupted");
}

Result<int> half_of(int value) {
  if (value % 2 != 0) return fail(ErrorCode::bad_input, "odd", "give an even number");
  return value / 2;
}

Result<int> quarter_of(int value) {
  HEXLM_ASSIGN(const int half, half_of(value));
  HEXLM_TRY(half_of(half));
  HEXLM_ASSIGN(const int quarter, half_of(half));
  return quarter;
}

TEST(Error, MacrosPassErrorsOn) {
  EXPECT_EQ(quarter_of(12), 3);
  const auto failed = quarter_of(6);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "odd");
  EXPECT_EQ(failed.error().hint, "give an even number");
}

TEST(DType, NamesAndWidths) {
  const std::vector<std::pair<std::string, int>> expected = {
      {"BOOL", 8},    {"U8", 8},   {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16},
      {"U16", 16},    {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},
      {"F32", 32},    {"C64", 64}, {"F64", 64},    {"I64", 64},    {"U64", 64}};
  std::set<DType> seen;
  for (const auto& [name, bits] : expected) {
    const auto type = parse_dtype(name);
    ASSERT_TRUE(type) << name;
    EXPECT_EQ(to_string(*type), name);
    EXPECT_EQ(bit_width(*type), bits) << name;
    seen.insert(*type);
  }
  EXPECT_EQ(seen.size(), expected.size());
  EXPECT_FALSE(parse_dtype("f32"));
  EXPECT_FALSE(parse_dtype(""));
  EXPECT_FALSE(parse_dtype("F8_E4M3FN"));
}

TEST(Hash, MatchesPublishedValuesAndStreams) {
  // XXH3_64bits of "" and the 64-bit digest of "abc", from the xxHash reference program (xxhsum -H3).
  EXPECT_EQ(to_hex(hash64({})), "2d06800538d394c2");
  constexpr std::array<char, 3> abc = {'a', 'b', 'c'};
  EXPECT_EQ(to_hex(hash64(std::as_bytes(std::span(abc)))), "78af5f94892f3950");
  std::vector<std::byte> bytes(100'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 % 256);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{1024}, size_t{99'999}}) {
    Hasher hasher;
    for (size_t offset = 0; offset < bytes.size(); offset += piece) {
      hasher.update(std::span(bytes).subspan(offset, std::min(piece, bytes.size() - offset)));
    }
    EXPECT_EQ(hasher.digest(), hash64(bytes)) << piece;
  }
  EXPECT_EQ(to_hex(0xab), "00000000000000ab");
}

TEST(AlignedBuffer, IsZeroedAlignedAndMovable) {
  for (const auto& make : {AlignedBuffer::allocate, AlignedBuffer::reserve}) {
    auto made = make(100'000);
    ASSERT_TRUE(made);
    AlignedBuffer buffer = std::move(*made);
    EXPECT_EQ(buffer.size(), 100'000U);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % AlignedBuffer::alignment, 0U);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + buffer.size(),
                            [](std::byte b) { return b == std::byte{0}; }));
    buffer.as<float>()[24'999] = 1.5F;
    const AlignedBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.as<float>()[24'999], 1.5F);
  }
  const auto empty = AlignedBuffer::allocate(0);
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->size(), 0U);
}

TEST(AlignedBuffer, ReserveTakesMoreThanMemoryHolds) {
  constexpr size_t terabyte = size_t{1} << 40;
  auto buffer = AlignedBuffer::reserve(terabyte);
  ASSERT_TRUE(buffer) << buffer.error().message;
  EXPECT_EQ(buffer->size(), terabyte);
  buffer->as<char>()[terabyte - 1] = 7;
  EXPECT_EQ(buffer->as<char>()[terabyte / 2], 0);
}

TEST(AlignedBuffer, ImpossibleSizeIsALimit) {
  const auto buffer = AlignedBuffer::allocate(std::numeric_limits<size_t>::max() / 2);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::limit);
  EXPECT_THAT(buffer.error().message, HasSubstr("9223372036854775807"));
}

TEST(CpuFeatures, DescribeListsWhatIsThere) {
  CpuFeatures features;
  const std::string bare = describe(features);
  EXPECT_FALSE(bare.empty());
  features.avx2 = true;
  features.i8mm = true;
  EXPECT_EQ(describe(features), bare + " avx2 i8mm");
  const CpuFeatures& own = cpu_features();
  EXPECT_TRUE(own.avx2 || !own.avx512);
  EXPECT_TRUE(own.avx512 || !own.avx512_vnni);
}

TEST(CpuFeatures, AvailableThreadsFollowTheAffinityMask) {
  EXPECT_GE(available_threads(), 1);
  int restricted = 0;
  std::thread([&] {
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    restricted = available_threads();
  }).join();
  EXPECT_EQ(restricted, 1);
}

TEST(Log, LevelsFilterAndNothingGoesToStdout) {
  const LogLevel former = log_level();
  set_log_level(LogLevel::warning);
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  log_warning("w");
  log_info("i");
  set_log_level(LogLevel::debug);
  log_info("i2");
  log_debug("d");
  set_log_level(LogLevel::quiet);
  log_warning("w2");
  set_log_level(former);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: w\ni2\ndebug: d\n");
}

TEST(Progress, PrintsALinePerTenthOffTheTerminal) {
  testing::internal::CaptureStderr();
  const ProgressCallback progress = terminal_progress("export");
  for (uint64_t done = 0; done <= 1000; ++done) EXPECT_TRUE(progress("layer", done, 1000));
  EXPECT_TRUE(progress("layer", 1000, 1000));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);
  EXPECT_THAT(text, HasSubstr("export: 0%\n"));
  EXPECT_THAT(text, HasSubstr("export: 100%\n"));
}

TEST(Progress, InterruptStopsTheJobAndASecondOneEndsTheProcess) {
  EXPECT_EXIT(
      {
        install_interrupt_handler();
        const bool before = interrupted();
        std::raise(SIGINT);
        const ProgressCallback progress = terminal_progress("job");
        const bool goes_on = progress("x", 1, 2);
        if (before || !interrupted() || goes_on) std::_Exit(1);
        std::raise(SIGINT);
        std::_Exit(2);
      },
      testing::ExitedWithCode(130), "");
}

TEST(Progress, EverySignalThatAsksToEndInterrupts) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(
        {
          install_interrupt_handler();
          std::raise(signal);
          std::_Exit(interrupted() ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
  }
}

[[noreturn]] void wait_for_input_and_exit() {
  install_interrupt_handler();
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) std::_Exit(1);
  std::raise(SIGINT);
  if (wait_for_input(ends[0])) std::_Exit(2);
  clear_interrupt();
  std::thread late([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::raise(SIGTERM);  // this thread takes it, not the one that waits
  });
  if (wait_for_input(ends[0])) std::_Exit(3);
  late.join();
  clear_interrupt();
  if (::write(ends[1], "x", 1) != 1 || !wait_for_input(ends[0])) std::_Exit(4);
  ::close(ends[1]);
  if (!wait_for_input(ends[0])) std::_Exit(5);  // the end is something to read
  std::_Exit(0);
}

TEST(Progress, WaitingForInputEndsWithAnInterruptAndCanStartAgain) {
  EXPECT_EXIT(wait_for_input_and_exit(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hexlm
