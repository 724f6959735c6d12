#include "runtime/stop_filter.hpp"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace hexlm {
namespace {

/// The text that comes out when `text` goes in by pieces of `size` bytes.
std::string filtered(const std::vector<std::string>& stops, const std::string& text, size_t size,
                     bool& stopped) {
  StopFilter filter(stops);
  std::string out;
  for (size_t begin = 0; begin < text.size(); begin += size) {
    out += filter.push(std::string_view(text).substr(begin, size));
  }
  stopped = filter.stopped();
  return stopped ? out : out + filter.finish();
}

void expect_cut(const std::vector<std::string>& stops, const std::string& text, const std::string& expected,
                bool expect_stop) {
  for (size_t size = 1; size <= text.size(); ++size) {
    bool stopped = false;
    EXPECT_EQ(filtered(stops, text, size, stopped), expected) << "pieces of " << size;
    EXPECT_EQ(stopped, expect_stop) << "pieces of " << size;
  }
}

TEST(StopFilter, CutsAtTheStopHoweverTheTextIsSplit) {
  expect_cut({"User:"}, "hello\nUser: hi", "hello\n", true);
  expect_cut({"aab"}, "aaaab", "aa", true);
  expect_cut({"。"}, "你好。再见", "你好", true);
}

TEST(StopFilter, OfSeveralTheOneThatIsCompleteFirstCounts) {
  expect_cut({"abc", "b"}, "xabcx", "xa", true);
  expect_cut({"cd", "bcd"}, "abcde", "a", true);
  expect_cut({"zz", "yy"}, "1yy2zz", "1", true);
}

TEST(StopFilter, PassesEverythingWithoutAMatch) {
  expect_cut({"stop", "end"}, "sto en stoen st", "sto en stoen st", false);
  expect_cut({}, "plain", "plain", false);
  expect_cut({""}, "plain", "plain", false);
}

TEST(StopFilter, HoldsBackOnlyWhatCanStillMatch) {
  StopFilter filter({"<end>"});
  EXPECT_EQ(filter.push("a<"), "a");
  EXPECT_EQ(filter.push("b<e"), "<b");
  EXPECT_EQ(filter.push("nd"), "");
  EXPECT_EQ(filter.push(">c"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("more"), "");
}

}  // namespace
}  // namespace hexlm
