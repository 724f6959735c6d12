#include "tokenizer/jinja/budget.hpp"

namespace hexlm::jinja {

bool Budget::spend(uint64_t steps) {
  steps_ += steps;
  if (steps_ > max_steps) exhaust("the template takes more than 10 million steps");
  return !exhausted();
}

bool Budget::room(uint64_t bytes) {
  if (bytes > max_live_bytes || live_ + bytes > max_live_bytes) {
    exhaust("the template's values take more than 256 MiB");
  }
  return !exhausted();
}

void Budget::hold(uint64_t bytes) {
  room(bytes);
  spend(bytes / bytes_per_step);
  live_ += bytes;
}

void Budget::exhaust(const char* reason) {
  if (reason_ == nullptr) reason_ = reason;
}

Error Budget::error() const { return Error{ErrorCode::limit, reason_, {}}; }

}  // namespace hexlm::jinja
