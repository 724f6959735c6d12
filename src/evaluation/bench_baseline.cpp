#include "evaluation/bench_baseline.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "evaluation/statistics.hpp"

namespace hexlm {
namespace {

constexpr double noise_factor = 3;

double spread(const std::vector<double>& samples) {
  const auto [low, high] = std::minmax_element(samples.begin(), samples.end());
  return std::max(robust_deviation(samples), (*high - *low) / 2);
}

bool is_row(const Json& row) {
  return row.is_object() && row.contains("name") && row["name"].is_string() && row.contains("backend") &&
         row["backend"].is_string() && row.contains("threads") && row["threads"].is_number_integer() &&
         row.contains("samples") && row["samples"].is_array() && !row["samples"].empty() &&
         std::all_of(row["samples"].begin(), row["samples"].end(),
                     [](const Json& sample) { return sample.is_number(); });
}

/// Results from before rows had a precision match any.
bool same_setting(const Json& a, const Json& b) {
  const auto precision = [](const Json& row) { return row.value("precision", std::string()); };
  return a["name"] == b["name"] && a["backend"] == b["backend"] &&
         (precision(a).empty() || precision(b).empty() || precision(a) == precision(b));
}

/// The row with the same number of threads, else the first that only differs in it: one thread less is a
/// change of the run, and shows as such.
const Json* partner(const Json& row, const Json& others) {
  const Json* fallback = nullptr;
  for (const Json& other : others) {
    if (!same_setting(row, other)) continue;
    if (row["threads"] == other["threads"]) return &other;
    if (fallback == nullptr) fallback = &other;
  }
  return fallback;
}

}  // namespace

std::string_view to_string(SpeedChange change) {
  switch (change) {
    case SpeedChange::faster:
      return "faster";
    case SpeedChange::slower:
      return "slower";
    case SpeedChange::none:
      break;
  }
  return "no change";
}

BaselineRow compare_speed(const std::vector<double>& before, const std::vector<double>& after) {
  BaselineRow row;
  row.before = median(before);
  row.after = median(after);
  if (before.empty() || after.empty() || row.before <= 0) return row;
  row.change = row.after / row.before - 1;
  const double combined = std::hypot(spread(before), spread(after)) / row.before;
  row.noise = std::max(least_speed_change, noise_factor * combined);
  if (std::abs(row.change) > row.noise)
    row.verdict = row.change > 0 ? SpeedChange::faster : SpeedChange::slower;
  return row;
}

Result<std::vector<BaselineRow>> compare_with_baseline(const Json& rows, const Json& baseline,
                                                       const std::string& origin) {
  const bool valid = baseline.is_object() && baseline.contains("rows") && baseline["rows"].is_array() &&
                     std::all_of(baseline["rows"].begin(), baseline["rows"].end(), is_row);
  if (!valid) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: no result of a benchmark with rows and samples", origin),
                "give what `hexlm bench --format json` printed");
  }
  std::vector<BaselineRow> compared;
  for (const Json& row : rows) {
    const Json* other = partner(row, baseline["rows"]);
    if (other == nullptr) continue;
    BaselineRow result = compare_speed((*other)["samples"].get<std::vector<double>>(),
                                       row["samples"].get<std::vector<double>>());
    result.name = row["name"].get<std::string>();
    result.backend = row["backend"].get<std::string>();
    result.threads = row["threads"].get<int64_t>();
    result.precision = row.value("precision", std::string());
    compared.push_back(std::move(result));
  }
  return compared;
}

Json to_json(const std::vector<BaselineRow>& rows) {
  Json json = Json::array();
  for (const BaselineRow& row : rows) {
    json.push_back({{"name", row.name},
                    {"backend", row.backend},
                    {"threads", row.threads},
                    {"precision", row.precision},
                    {"before", row.before},
                    {"after", row.after},
                    {"change", row.change},
                    {"noise", row.noise},
                    {"verdict", to_string(row.verdict)}});
  }
  return json;
}

}  // namespace hexlm
