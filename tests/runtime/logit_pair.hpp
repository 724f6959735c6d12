#pragma once

#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "runtime/model.hpp"
#include "runtime/session.hpp"

namespace hexlm {

/// Logits of all of 24 fixed tokens at precision high.
inline std::vector<float> fixed_logits(const std::string& path, Precision precision = Precision::high) {
  const auto model = Model::open(path, {2, true, {}});
  EXPECT_TRUE(model) << model.error().message;
  if (!model) return {};
  SessionOptions options;
  options.precision = precision;
  options.threads = 2;
  options.context = 64;
  auto session = Session::create(*model, options);
  EXPECT_TRUE(session) << session.error().message;
  if (!session) return {};
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 24; ++i) tokens.push_back(i * 37 % 200);
  std::vector<float> all;
  const auto status = (*session)->forward(tokens, 24, [&](int64_t, int64_t, std::span<const float> logits) {
    all.insert(all.end(), logits.begin(), logits.end());
    return Status();
  });
  EXPECT_TRUE(status);
  return all;
}

inline double relative_norm(const std::vector<float>& got, const std::vector<float>& expected) {
  EXPECT_EQ(got.size(), expected.size());
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    error += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return norm > 0 ? std::sqrt(error / norm) : 1;
}

}  // namespace hexlm
