#include "base/processors.hpp"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <mutex>
#include <set>
#include <thread>

#include "base/thread_pool.hpp"
#include "support/temporary_folder.hpp"

namespace hexlm {
namespace {

/// A /sys that says of processors what a test writes into it.
class FakeSysfs {
 public:
  std::string root() const { return folder_.file(""); }
  void write(const std::string& name, const std::string& content) const {
    const std::filesystem::path path = folder_.file("devices/system/cpu/" + name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }
  void capacity(int processor, const std::string& content) const {
    write(fmt::format("cpu{}/cpu_capacity", processor), content);
  }
  void frequency(int processor, const std::string& content) const {
    write(fmt::format("cpu{}/cpufreq/cpuinfo_max_freq", processor), content);
  }
  /// Files of processors 0, 1, … in turn; an empty one is not written.
  void capacities(const std::vector<std::string>& contents) const {
    for (size_t i = 0; i < contents.size(); ++i)
      if (!contents[i].empty()) capacity(static_cast<int>(i), contents[i]);
  }
  void frequencies(const std::vector<std::string>& contents) const {
    for (size_t i = 0; i < contents.size(); ++i)
      if (!contents[i].empty()) frequency(static_cast<int>(i), contents[i]);
  }
  ProcessorChoice choose(const std::vector<int>& allowed) const { return choose_processors(root(), allowed); }

 private:
  TemporaryFolder folder_;
};

const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};
const std::vector<int> upper_half = {4, 5, 6, 7};

TEST(Processors, OfAPhoneAreTheBigOnesByCapacity) {
  const FakeSysfs phone;  // 4 + 3 + 1, as a Snapdragon 8 Gen 1
  phone.capacities({"324", "324", "324", "324", "855\n", "855\n", "855\n", "1024\n"});
  // Capacities come first: these would say otherwise.
  phone.frequencies({"9", "9", "9", "9", "1", "1", "1", "1"});
  const ProcessorChoice choice = phone.choose(eight);
  EXPECT_EQ(choice.processors, upper_half);
  EXPECT_EQ(choice.allowed, 8);
  EXPECT_TRUE(choice.pinned());
  EXPECT_EQ(describe(choice), "4 of 8 processors (4-7) by cpu_capacity, pinned");
}

TEST(Processors, OfAPhoneWithoutLittleOnesAreAll) {
  const FakeSysfs phone;  // 6 + 2, as a Snapdragon 8 Elite
  phone.capacities({"842", "842", "842", "842", "842", "842", "1024", "1024"});
  const ProcessorChoice choice = phone.choose(eight);
  EXPECT_EQ(choice.processors, eight);
  EXPECT_FALSE(choice.pinned());
  EXPECT_EQ(describe(choice), "8 processors (0-7), none little by cpu_capacity");
}

TEST(Processors, AreChosenAmongThoseTheProcessMayUse) {
  const FakeSysfs phone;
  phone.capacities({"324", "324", "324", "324", "855", "855", "855", "1024"});
  EXPECT_EQ(phone.choose({2, 3, 5, 7}).processors, (std::vector<int>{5, 7}));
  EXPECT_EQ(describe(phone.choose({2, 3, 5, 7})), "2 of 4 processors (5,7) by cpu_capacity, pinned");
  // In the background, where Android allows little cores only, those are all there is.
  const ProcessorChoice little = phone.choose({0, 1, 2});
  EXPECT_EQ(little.processors, (std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(little.pinned());
}

TEST(Processors, AreToldApartByFrequenciesWhereThereAreNoCapacities) {
  const FakeSysfs three_kinds;
  three_kinds.frequencies(
      {"1785600", "1785600", "1785600", "1785600", "2496000", "2496000", "2496000", "2995200"});
  EXPECT_EQ(three_kinds.choose(eight).processors, upper_half);
  EXPECT_EQ(three_kinds.choose(eight).source, "cpufreq");
  const FakeSysfs near_kinds;  // as a Snapdragon 778G
  near_kinds.frequencies(
      {"1900800", "1900800", "1900800", "1900800", "2208000", "2208000", "2208000", "2400000"});
  EXPECT_EQ(near_kinds.choose(eight).processors, upper_half);
  const FakeSysfs favoured;  // one kind, of which some reach a little more
  favoured.frequencies({"4900000", "5000000", "5050000", "5200000"});
  EXPECT_EQ(favoured.choose({0, 1, 2, 3}).processors, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_FALSE(favoured.choose({0, 1, 2, 3}).pinned());
}

TEST(Processors, ThatAreOfflineAreLeftOut) {
  const FakeSysfs phone;
  phone.write("online", "0-2,4-6\n");
  // The files of offline processors go away with them.
  phone.capacities({"324", "324", "324", "", "855", "855", "855", ""});
  const ProcessorChoice choice = phone.choose(eight);
  EXPECT_EQ(choice.processors, (std::vector<int>{4, 5, 6}));
  EXPECT_EQ(choice.allowed, 6);
}

TEST(Processors, AreAllWhereFilesAreMissingOrHoldNoNumbers) {
  const FakeSysfs nothing;
  const ProcessorChoice all = nothing.choose({0, 1, 2});
  EXPECT_EQ(all.processors, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(all.source, "");
  EXPECT_EQ(describe(all), "3 processors (0-2), speeds unknown");
  for (const char* bad : {"", "\n", "0", "-5", "fast", "1024 MHz", "99999999999999999999", "0x400", "1e3"}) {
    SCOPED_TRACE(bad);
    const FakeSysfs broken;
    broken.capacities({"324", "324", "855"});
    broken.capacity(1, bad);
    EXPECT_EQ(broken.choose({0, 1, 2}).processors, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(broken.choose({0, 2}).processors, std::vector<int>{2}) << "the other files are sound";
    // One source whole is better than another in part.
    broken.frequencies({"1000", "1000", "2000"});
    EXPECT_EQ(broken.choose({0, 1, 2}).processors, std::vector<int>{2});
  }
}

TEST(Processors, AreNotLostToAListOfOnlineOnesThatMakesNoSense) {
  for (const char* bad : {"", "\n", "none", "3-1", "0-99999999999", "-1", "1-", ",", "0-1-2", "70-71"}) {
    SCOPED_TRACE(bad);
    const FakeSysfs broken;
    broken.write("online", bad);
    EXPECT_EQ(broken.choose({0, 1, 2}).processors, (std::vector<int>{0, 1, 2}));
  }
}

TEST(Processors, OfThisMachineAreSomeOfTheAllowed) {
  const std::vector<int> allowed = allowed_processors();
  ASSERT_FALSE(allowed.empty());
  const ProcessorChoice choice = choose_processors("/sys", allowed);
  ASSERT_FALSE(choice.processors.empty());
  for (const int processor : choice.processors)
    EXPECT_TRUE(std::find(allowed.begin(), allowed.end(), processor) != allowed.end()) << processor;
}

TEST(Pinning, KeepsAThreadThereUntilTheScopeEnds) {
  const std::vector<int> before = allowed_processors();
  {
    const PinnedThread pinned(std::vector<int>{before.back()});
    EXPECT_EQ(allowed_processors(), std::vector<int>{before.back()});
  }
  EXPECT_EQ(allowed_processors(), before);
  {
    const PinnedThread nowhere(std::vector<int>{});
    EXPECT_EQ(allowed_processors(), before);
  }
  EXPECT_FALSE(pin_thread(std::vector<int>{}));
  EXPECT_FALSE(pin_thread(std::vector<int>{-1}));
  EXPECT_FALSE(pin_thread(std::vector<int>{60000})) << "a processor that no machine here has";
  EXPECT_EQ(allowed_processors(), before);
}

TEST(Pinning, OfAPoolHoldsForItsThreadsAndNotForTheCaller) {
  const std::vector<int> before = allowed_processors();
  const std::vector<int> one = {before.front()};
  ThreadPool pool(3, one);
  EXPECT_EQ(pool.processors(), one);
  std::mutex mutex;
  std::set<int> workers;
  // Until each of the pool's own threads has had a turn.
  for (int round = 0; round < 1000 && workers.size() < 2; ++round) {
    pool.run(8, 1, [&](int64_t, int64_t, int worker) {
      const std::vector<int> allowed = allowed_processors();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex);
      EXPECT_EQ(allowed, worker == 0 ? before : one) << worker;
      if (worker != 0) workers.insert(worker);
    });
  }
  EXPECT_EQ(workers.size(), 2U);
  EXPECT_EQ(allowed_processors(), before);
}

}  // namespace
}  // namespace hexlm
