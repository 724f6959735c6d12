#pragma once

#include <optional>

#include "base/error.hpp"
#include "hexlm/arguments.hpp"
#include "quantization/calibration_text.hpp"

namespace hexlm::tool {

/// The calibration samples that --calibration and its companions ask for; none without --calibration. Says on
/// stderr what was taken from where and what is missing.
Result<std::optional<CalibrationSet>> read_calibration(const Arguments& arguments,
                                                       const std::string& checkpoint);
/// The same for settings that are known.
Result<CalibrationSet> load_samples(CalibrationOptions options, const std::string& checkpoint, int threads);
Json to_json(const CalibrationSet& set);

}  // namespace hexlm::tool
