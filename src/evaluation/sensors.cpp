#include "evaluation/sensors.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

namespace hexlm {
namespace {

namespace fs = std::filesystem;

std::optional<double> read_number(const fs::path& path) {
  std::ifstream file(path);
  double value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

/// Folders below `folder` whose names begin with `prefix`; none when there is no such folder.
std::vector<fs::path> folders(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix)) found.push_back(at->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<double> frequency(const fs::path& root) {
  double sum = 0;
  int count = 0;
  for (const fs::path& cpu : folders(root / "sys/devices/system/cpu", "cpu")) {
    const auto khz = read_number(cpu / "cpufreq/scaling_cur_freq");
    if (!khz) continue;
    sum += *khz / 1000;
    ++count;
  }
  if (count > 0) return sum / count;
  // Virtual machines have no cpufreq; x86 kernels still tell what the processor runs at.
  std::ifstream info(root / "proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    const size_t colon = line.find(": ");
    if (!line.starts_with("cpu MHz") || colon == std::string::npos) continue;
    sum += std::strtod(line.c_str() + colon + 2, nullptr);
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

std::optional<double> temperature(const fs::path& root) {
  std::optional<double> hottest;
  for (const fs::path& zone : folders(root / "sys/class/thermal", "thermal_zone")) {
    const auto millidegrees = read_number(zone / "temp");
    // Zones that are off read 0, −274 °C and the like.
    if (!millidegrees || *millidegrees <= 0 || *millidegrees > 200000) continue;
    hottest = std::max(hottest.value_or(0), *millidegrees / 1000);
  }
  return hottest;
}

std::optional<double> energy(const fs::path& root) {
  std::optional<double> sum;
  for (const fs::path& zone : folders(root / "sys/class/powercap", "intel-rapl:")) {
    // "intel-rapl:0" is a package, "intel-rapl:0:1" a part that the package has counted already.
    const std::string name = zone.filename().string();
    if (std::count(name.begin(), name.end(), ':') != 1) continue;
    const auto microjoules = read_number(zone / "energy_uj");
    if (microjoules) sum = sum.value_or(0) + *microjoules / 1e6;
  }
  return sum;
}

std::optional<double> battery(const fs::path& root) {
  for (const fs::path& supply : folders(root / "sys/class/power_supply", "")) {
    const auto microwatts = read_number(supply / "power_now");
    if (microwatts) return *microwatts / 1e6;
    const auto microamperes = read_number(supply / "current_now");
    const auto microvolts = read_number(supply / "voltage_now");
    if (microamperes && microvolts) return std::abs(*microamperes) * *microvolts / 1e12;
  }
  return std::nullopt;
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

SensorReading read_sensors(const std::string& root) {
  return {frequency(root), temperature(root), energy(root), battery(root)};
}

Json sensors_json(const SensorReading& before, const SensorReading& after) {
  Json json;
  json["frequency_mhz"] = {{"before", json_of(before.frequency_mhz)},
                           {"after", json_of(after.frequency_mhz)}};
  json["temperature_celsius"] = {{"before", json_of(before.temperature_celsius)},
                                 {"after", json_of(after.temperature_celsius)}};
  json["battery_watts"] = json_of(after.battery_watts);
  json["energy_joules"] = nullptr;
  // A counter that wrapped around says nothing.
  if (before.energy_joules && after.energy_joules && *after.energy_joules >= *before.energy_joules)
    json["energy_joules"] = *after.energy_joules - *before.energy_joules;
  return json;
}

}  // namespace hexlm
