#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"

namespace hexlm {

enum class SpeedChange : uint8_t { none, faster, slower };
std::string_view to_string(SpeedChange change);

/// A row of two measurements: same name, backend, threads and precision.
struct BaselineRow {
  std::string name;
  std::string backend;
  int64_t threads = 0;
  std::string precision;
  double before = 0;  ///< median
  double after = 0;
  double change = 0;  ///< after / before − 1
  double noise = 0;   ///< what a change must exceed
  SpeedChange verdict = SpeedChange::none;
};

/// Below this, relative, nobody should care, and no measurement on a machine with other users tells.
inline constexpr double least_speed_change = 0.05;

/// Whether the medians of two sets of samples differ by more than noise: by more than 5 % and more than three
/// times the combined spread of single samples, √(σ₁² + σ₂²) relative to the first median. σ is the robust
/// deviation or, where that is larger, half the range: few samples underestimate it. The spread of samples
/// and not of their mean, as what drifts between two runs (heat, other programs) does not average out.
BaselineRow compare_speed(const std::vector<double>& before, const std::vector<double>& after);

/// Rows of `rows` (of the JSON result of `hexlm bench`) that `baseline` has too. A row whose number
/// of threads the baseline lacks is compared with another number of threads. Errors: bad_input naming
/// `origin` when it is no such result.
Result<std::vector<BaselineRow>> compare_with_baseline(const Json& rows, const Json& baseline,
                                                       const std::string& origin);
Json to_json(const std::vector<BaselineRow>& rows);

}  // namespace hexlm
