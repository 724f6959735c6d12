#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hexlm {

/// Processors this process may run on (its affinity mask), ascending; never empty.
std::vector<int> allowed_processors();

/// Which processors a thread pool should use, and how that was found out.
struct ProcessorChoice {
  std::vector<int> processors;  ///< ascending, never empty
  int allowed = 1;              ///< how many there were to choose from
  /// What told their speeds apart: "cpu_capacity" or "cpufreq"; empty where the system tells nothing.
  std::string_view source;
  /// Threads are to be kept on `processors`; where every processor is chosen there is nothing to keep.
  bool pinned() const { return static_cast<int>(processors.size()) < allowed; }
};

/// The big ones of `allowed` (not empty), from what the kernel says below `sysfs` ("/sys"): processors of at
/// least half the greatest cpu_capacity, else those above the widest step between maximum frequencies. Files
/// that are missing or hold no number make a source unusable as a whole, and without any source every
/// processor is chosen. Processors that the kernel lists as offline are left out.
ProcessorChoice choose_processors(const std::string& sysfs, std::span<const int> allowed);
/// "4 of 8 processors (4-7) by cpu_capacity, pinned", "2 processors (0-1), none little by cpufreq"
std::string describe(const ProcessorChoice& choice);

/// Keeps the calling thread on `processors` until the end of the scope, then gives it back what it had. Does
/// nothing for an empty list, and where the system refuses.
class PinnedThread {
 public:
  explicit PinnedThread(std::span<const int> processors);
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

 private:
  std::vector<unsigned char> before_;  ///< an affinity mask; empty when nothing was changed
};

/// Keeps the calling thread on `processors` for good; false when the system refuses.
bool pin_thread(std::span<const int> processors);

}  // namespace hexlm
