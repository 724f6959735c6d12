#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "formats/json.hpp"
#include "formats/name_pattern.hpp"

namespace hexlm {

/// adapter_config.json, as far as inference depends on it (spec E.1).
struct AdapterConfig {
  int64_t rank = 8;
  double alpha = 8;
  bool root_scaling = false;  ///< use_rslora
  bool dora = false;
  bool transposed = false;  ///< fan_in_fan_out
  bool trained_bias = false;
  std::vector<std::pair<NamePattern, int64_t>> rank_patterns;
  std::vector<std::pair<NamePattern, double>> alpha_patterns;
  std::vector<std::string> saved_modules;
  std::string base_model;

  /// Of the module at `path`: the first pattern that matches it, or the default.
  Result<int64_t> rank_of(std::string_view path) const;
  Result<double> alpha_of(std::string_view path) const;
  /// Whether modules_to_save names the module (exactly, or its last parts).
  bool is_saved(std::string_view path) const;
};

/// Errors: those of Adapter::open that concern the configuration.
Result<AdapterConfig> parse_adapter_config(const Json& json, const std::string& origin);

}  // namespace hexlm
