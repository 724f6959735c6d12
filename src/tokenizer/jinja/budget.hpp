#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace hexlm::jinja {

/// Steps one rendering may take; a step is one evaluated node, one visited item `bytes_per_step` bytes of
/// text read or written, or `names_per_step` names searched.
inline constexpr uint64_t max_steps = 10'000'000;
inline constexpr uint64_t bytes_per_step = 256;
/// Variables that a search passes in the time of a step.
inline constexpr uint64_t names_per_step = 32;
/// Output of one rendering, counting the buffers of macros and set blocks under way.
inline constexpr uint64_t max_output_bytes = uint64_t{64} << 20;
/// Values alive at one time. Four outputs' worth: a template holds a few copies of a long message, never
/// many.
inline constexpr uint64_t max_live_bytes = uint64_t{256} << 20;
/// Nesting of the template's tags and expressions.
inline constexpr int max_template_depth = 200;
/// Nesting of evaluations, macros included. One level takes below 1 KiB of stack (4 KiB with sanitizers), so
/// that a rendering fits in a thread of 1 MiB.
inline constexpr int max_evaluation_depth = 600;
/// Nesting of lists and dicts. Above the 256 levels that JSON input may have.
inline constexpr int max_value_depth = 320;

/// What one rendering has used. Running out is remembered and reported by the interpreter after the node
/// under way, so that helpers need not return errors for it: they stop early and return anything.
class Budget {
 public:
  /// Counts `steps`; returns false once the budget is exhausted.
  bool spend(uint64_t steps = 1);
  /// Counts the work of touching `bytes` of text.
  bool spend_bytes(uint64_t bytes) { return spend(1 + bytes / bytes_per_step); }
  /// Whether `bytes` more may be alive; exhausts the budget if not. Ask before an operation whose result can
  /// be much larger than its operands.
  bool room(uint64_t bytes);
  void hold(uint64_t bytes);
  void release(uint64_t bytes) { live_ -= bytes; }
  /// Exhausts the budget for `reason`, a string literal that reads "the template …".
  void exhaust(const char* reason);

  bool exhausted() const { return reason_ != nullptr; }
  Error error() const;

 private:
  uint64_t steps_ = 0;
  uint64_t live_ = 0;
  const char* reason_ = nullptr;
};

/// The share of a budget that one value holds; null for values that outlive renderings.
class Hold {
 public:
  Hold() = default;
  Hold(Budget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {
    if (budget_ != nullptr) budget_->hold(bytes_);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    if (budget_ != nullptr) budget_->release(bytes_);
  }

 private:
  Budget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace hexlm::jinja
