#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "formats/json.hpp"

namespace hexlm {

/// What Linux tells about heat, clocks and energy; nothing where the system does not say.
struct SensorReading {
  std::optional<double> frequency_mhz;        ///< mean of the processors
  std::optional<double> temperature_celsius;  ///< of the hottest thermal zone
  std::optional<double> energy_joules;        ///< counter of the processor packages (RAPL); wraps around
  std::optional<double> battery_watts;        ///< drawn from the battery
};

/// `root` is "/" but in tests.
SensorReading read_sensors(const std::string& root = "/");

/// {frequency_mhz, temperature_celsius} before and after, and the energy between, null where unknown.
Json sensors_json(const SensorReading& before, const SensorReading& after);

}  // namespace hexlm
