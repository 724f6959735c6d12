#include "base/processors.hpp"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <sched.h>
#include <thread>

#include "base/text.hpp"

namespace hexlm {
namespace {

/// The kernel refuses a mask shorter than its own; 64 Ki processors is far above any kernel's configuration.
constexpr int most_processors = 65536;

/// Work is handed out in small pieces, so a slower processor helps as long as it doesn't keep the others
/// waiting for its last piece: one of half the speed does that rarely. The little cores of phones have a
/// fifth to two fifths of the greatest capacity, the middle ones three quarters.
constexpr double least_capacity_share = 0.5;

/// Frequencies say nothing of the work done in a cycle, so no share of the greatest would be right: kinds of
/// cores are told apart by steps. Between little and big cores of one chip these are 1.15 to 1.6, between
/// favoured and other cores of one kind below 1.1.
constexpr double least_frequency_step = 1.12;

using Mask = std::vector<unsigned char>;

cpu_set_t* set_of(Mask& mask) { return reinterpret_cast<cpu_set_t*>(mask.data()); }

/// The calling thread's affinity mask; empty when the system doesn't tell.
Mask read_mask() {
  for (int processors = CPU_SETSIZE; processors <= most_processors; processors *= 2) {
    Mask mask(CPU_ALLOC_SIZE(processors));
    if (sched_getaffinity(0, mask.size(), set_of(mask)) == 0) return mask;
    if (errno != EINVAL) break;
  }
  return {};
}

/// The first line of a file of sysfs; none when it can't be read.
std::optional<std::string> read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

/// A positive number that a file of sysfs holds.
std::optional<int64_t> read_positive(const std::string& path) {
  const auto line = read_line(path);
  int64_t value = 0;
  if (!line || !parse_integer(*line, value) || value <= 0) return std::nullopt;
  return value;
}

/// Processors of a list as the kernel writes it, "0-3,6"; none when it isn't one.
std::optional<std::vector<int>> parse_list(std::string_view text) {
  std::vector<int> processors;
  for (const std::string_view part : split(text, ',')) {
    const size_t dash = part.find('-');
    int64_t first = 0;
    int64_t last = 0;
    if (!parse_integer(part.substr(0, dash), first)) return std::nullopt;
    last = first;
    if (dash != std::string_view::npos && !parse_integer(part.substr(dash + 1), last)) return std::nullopt;
    if (first < 0 || last < first || last >= most_processors) return std::nullopt;
    for (int64_t i = first; i <= last; ++i) processors.push_back(static_cast<int>(i));
  }
  return processors;
}

/// "0-3,6"
std::string format_list(std::span<const int> processors) {
  std::string text;
  for (size_t i = 0; i < processors.size();) {
    size_t last = i;
    while (last + 1 < processors.size() && processors[last + 1] == processors[last] + 1) ++last;
    text += text.empty() ? "" : ",";
    text += last == i ? std::to_string(processors[i]) : fmt::format("{}-{}", processors[i], processors[last]);
    i = last + 1;
  }
  return text;
}

/// What a file below each processor's folder says; none unless all of them do.
std::optional<std::vector<int64_t>> read_values(const std::string& cpu_folder,
                                                std::span<const int> processors, const char* file) {
  std::vector<int64_t> values;
  for (const int processor : processors) {
    const auto value = read_positive(fmt::format("{}/cpu{}/{}", cpu_folder, processor, file));
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

/// The least capacity of a big core.
double least_big_capacity(const std::vector<int64_t>& capacities) {
  return least_capacity_share * static_cast<double>(*std::max_element(capacities.begin(), capacities.end()));
}

/// The frequency above the widest step, or the least one where no step is wide enough.
double least_big_frequency(std::vector<int64_t> frequencies) {
  std::sort(frequencies.begin(), frequencies.end());
  auto least = static_cast<double>(frequencies.front());
  double widest = least_frequency_step;
  for (size_t i = 1; i < frequencies.size(); ++i) {
    const double step = static_cast<double>(frequencies[i]) / static_cast<double>(frequencies[i - 1]);
    if (step < widest) continue;
    widest = step;
    least = static_cast<double>(frequencies[i]);
  }
  return least;
}

std::vector<int> at_least(std::span<const int> processors, const std::vector<int64_t>& values, double least) {
  std::vector<int> chosen;
  for (size_t i = 0; i < processors.size(); ++i) {
    if (static_cast<double>(values[i]) >= least) chosen.push_back(processors[i]);
  }
  return chosen;
}

/// Of `allowed` those that are online, as far as the kernel says so in a way that leaves some.
std::vector<int> online_of(const std::string& cpu_folder, std::span<const int> allowed) {
  std::vector<int> all(allowed.begin(), allowed.end());
  const auto line = read_line(cpu_folder + "/online");
  const auto listed = line ? parse_list(*line) : std::nullopt;
  if (!listed) return all;
  std::vector<int> online;
  std::copy_if(all.begin(), all.end(), std::back_inserter(online), [&](int processor) {
    return std::find(listed->begin(), listed->end(), processor) != listed->end();
  });
  return online.empty() ? all : online;
}

}  // namespace

std::vector<int> allowed_processors() {
  std::vector<int> processors;
  Mask mask = read_mask();
  const auto bits = static_cast<int>(mask.size() * 8);
  for (int i = 0; i < bits; ++i) {
    if (CPU_ISSET_S(static_cast<size_t>(i), mask.size(), set_of(mask))) processors.push_back(i);
  }
  if (!processors.empty()) return processors;
  const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int i = 0; i < count; ++i) processors.push_back(i);
  return processors;
}

ProcessorChoice choose_processors(const std::string& sysfs, std::span<const int> allowed) {
  const std::string folder = sysfs + "/devices/system/cpu";
  ProcessorChoice choice;
  choice.processors = online_of(folder, allowed);
  choice.allowed = static_cast<int>(choice.processors.size());
  if (const auto capacities = read_values(folder, choice.processors, "cpu_capacity")) {
    choice.source = "cpu_capacity";
    choice.processors = at_least(choice.processors, *capacities, least_big_capacity(*capacities));
  } else if (const auto frequencies = read_values(folder, choice.processors, "cpufreq/cpuinfo_max_freq")) {
    choice.source = "cpufreq";
    choice.processors = at_least(choice.processors, *frequencies, least_big_frequency(*frequencies));
  }
  return choice;
}

std::string describe(const ProcessorChoice& choice) {
  const size_t count = choice.processors.size();
  const std::string list = format_list(choice.processors);
  if (choice.pinned())
    return fmt::format("{} of {} processors ({}) by {}, pinned", count, choice.allowed, list, choice.source);
  return fmt::format(
      "{} processor{} ({}), {}", count, count == 1 ? "" : "s", list,
      choice.source.empty() ? "speeds unknown" : fmt::format("none little by {}", choice.source));
}

bool pin_thread(std::span<const int> processors) {
  if (processors.empty()) return false;
  const int greatest = *std::max_element(processors.begin(), processors.end());
  Mask mask(CPU_ALLOC_SIZE(std::max(greatest + 1, CPU_SETSIZE)));
  for (const int processor : processors) {
    if (processor < 0) return false;
    CPU_SET_S(static_cast<size_t>(processor), mask.size(), set_of(mask));
  }
  return sched_setaffinity(0, mask.size(), set_of(mask)) == 0;
}

PinnedThread::PinnedThread(std::span<const int> processors) {
  if (processors.empty()) return;
  Mask before = read_mask();
  if (before.empty() || !pin_thread(processors)) return;
  before_ = std::move(before);
}

PinnedThread::~PinnedThread() {
  if (!before_.empty()) sched_setaffinity(0, before_.size(), set_of(before_));
}

}  // namespace hexlm
