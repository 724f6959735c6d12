#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "runtime/model.hpp"
#include "runtime/session.hpp"
#include "support/test_data.hpp"

namespace hexlm {

/// The trained tiny model, opened once for all tests; nullptr after a failure.
inline std::shared_ptr<const Model> open_tiny_model() {
  static const auto model = Model::open(test_data("models/tiny-vl"), {2, true, {}});
  EXPECT_TRUE(model) << model.error().message;
  return model ? *model : nullptr;
}

inline std::unique_ptr<Session> open_session(const std::shared_ptr<const Model>& model,
                                             SessionOptions options) {
  auto session = Session::create(model, options);
  EXPECT_TRUE(session) << session.error().message;
  return session ? *std::move(session) : nullptr;
}

/// Float activations and cache, two threads.
inline SessionOptions high_precision() {
  SessionOptions options;
  options.threads = 2;
  options.precision = Precision::high;
  return options;
}

}  // namespace hexlm
