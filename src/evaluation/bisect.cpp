#include "evaluation/bisect.hpp"

#include <fmt/format.h>
#include <set>

namespace hexlm {
namespace {

std::string value_of(const Configuration& configuration, const std::string& name) {
  const auto found = configuration.find(name);
  return found == configuration.end() ? std::string() : found->second;
}

Configuration with(Configuration configuration, const std::string& name, const std::string& value) {
  if (value.empty()) {
    configuration.erase(name);
  } else {
    configuration[name] = value;
  }
  return configuration;
}

class Bisection {
 public:
  Bisection(const Configuration& good, const Configuration& bad, const ConfigurationMeasure& measure)
      : good_(good), bad_(bad), measure_(measure) {}

  Result<BisectResult> run(std::optional<double> threshold) {
    find_variables();
    if (result_.variables.empty())
      return fail(ErrorCode::usage, "the two configurations are the same",
                  "give a good and a bad one that differ in what could be the cause");
    HEXLM_TRY(measure_ends(threshold));
    for (BisectVariable& variable : result_.variables) {
      HEXLM_ASSIGN(variable.alone, measured(with(good_, variable.name, variable.bad)));
      variable.breaks = broken(variable.alone);
      if (!variable.breaks) continue;
      HEXLM_ASSIGN(variable.reverted, measured(with(bad_, variable.name, variable.good)));
    }
    if (result_.culprits().empty()) HEXLM_TRY(walk());
    result_.measured = static_cast<int64_t>(known_.size());
    return std::move(result_);
  }

 private:
  void find_variables() {
    std::set<std::string> names;
    for (const Configuration* configuration : {&good_, &bad_}) {
      for (const auto& [name, value] : *configuration) names.insert(name);
    }
    for (const std::string& name : names) {
      if (value_of(good_, name) == value_of(bad_, name)) continue;
      BisectVariable variable;
      variable.name = name;
      variable.good = value_of(good_, name);
      variable.bad = value_of(bad_, name);
      result_.variables.push_back(std::move(variable));
    }
  }

  Status measure_ends(std::optional<double> threshold) {
    HEXLM_ASSIGN(result_.good, measured(good_));
    HEXLM_ASSIGN(result_.bad, measured(bad_));
    result_.threshold = threshold.value_or((result_.good + result_.bad) / 2);
    // Written so that NaN fails too.
    if (result_.good >= result_.threshold && result_.bad < result_.threshold) return {};
    return fail(
        ErrorCode::verification,
        fmt::format("the good configuration scores {:.6g}, the bad one {:.6g}, the threshold is {:.6g}: "
                    "there is nothing to find",
                    result_.good, result_.bad, result_.threshold),
        "the bad configuration must score below the threshold, the good one not");
  }

  bool broken(double score) const { return !(score >= result_.threshold); }

  /// No change breaks alone: which one is the last straw?
  Status walk() {
    Configuration configuration = good_;
    for (const BisectVariable& variable : result_.variables) {
      configuration = with(configuration, variable.name, variable.bad);
      result_.together.push_back(variable.name);
      HEXLM_ASSIGN(const double score, measured(configuration));
      if (broken(score)) return {};
    }
    return {};
  }

  Result<double> measured(const Configuration& configuration) {
    const auto found = known_.find(configuration);
    if (found != known_.end()) return found->second;
    HEXLM_ASSIGN(const double score, measure_(configuration));
    known_.emplace(configuration, score);
    return score;
  }

  const Configuration& good_;
  const Configuration& bad_;
  const ConfigurationMeasure& measure_;
  std::map<Configuration, double> known_;
  BisectResult result_;
};

}  // namespace

std::vector<std::string> BisectResult::culprits() const {
  std::vector<std::string> names;
  for (const BisectVariable& variable : variables) {
    if (variable.breaks) names.push_back(variable.name);
  }
  return names;
}

Result<BisectResult> bisect(const Configuration& good, const Configuration& bad,
                            std::optional<double> threshold, const ConfigurationMeasure& measure) {
  return Bisection(good, bad, measure).run(threshold);
}

}  // namespace hexlm
