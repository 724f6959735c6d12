#pragma once

#include <memory>
#include <string>

#include "base/error.hpp"
#include "hexlm/arguments.hpp"
#include "runtime/model.hpp"
#include "runtime/session.hpp"

namespace hexlm::tool {

/// The two sides of a comparison, "a" (the reference) and "b". Flags such as --precision-b hold for one side,
/// --precision for both; each model's own settings for itself. One folder is opened once.
struct Sides {
  std::unique_ptr<Session> a;
  std::unique_ptr<Session> b;
  /// "qwen3-w4, cpu, precision high, kv cache f32, 2 threads, adapter my-lora × 0.7"
  std::string description_a;
  std::string description_b;
};
Result<Sides> open_sides(const Arguments& arguments);

}  // namespace hexlm::tool
