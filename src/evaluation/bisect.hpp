#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace hexlm {

/// Settings by name; a variable that is absent has its default.
using Configuration = std::map<std::string, std::string>;

/// How good a configuration is on the fixed input; larger is better.
using ConfigurationMeasure = std::function<Result<double>(const Configuration&)>;

/// One variable that differs between the two configurations.
struct BisectVariable {
  std::string name;
  std::string good;  ///< "" for the default
  std::string bad;
  double alone = 0;  ///< the good configuration with this one changed
  bool breaks = false;
  std::optional<double> reverted;  ///< the bad configuration with this one put right; of those that break
};

struct BisectResult {
  double good = 0;
  double bad = 0;
  double threshold = 0;  ///< below it a configuration counts as broken
  std::vector<BisectVariable> variables;
  /// When no single change breaks: variables changed one after the other until it broke, the last one
  /// included.
  std::vector<std::string> together;
  int64_t measured = 0;

  std::vector<std::string> culprits() const;
};

/// Walks from the good configuration to the bad one, one variable at a time. Without a threshold it is half
/// way between the two. Configurations are measured once each. Errors: usage when they don't differ;
/// verification when the bad one is not worse than the good one, or the threshold does not lie between.
Result<BisectResult> bisect(const Configuration& good, const Configuration& bad,
                            std::optional<double> threshold, const ConfigurationMeasure& measure);

}  // namespace hexlm
