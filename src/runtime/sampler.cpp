#include "runtime/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace hexlm {
namespace {

/// splitmix64: spreads any seed, 0 included, over the generator's state.
uint64_t next_seed(uint64_t& state) {
  state += 0x9e3779b97f4a7c15U;
  uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31);
}

uint64_t rotate_left(uint64_t value, int count) { return (value << count) | (value >> (64 - count)); }

/// xoshiro256**: own generator, because the standard's distributions differ between libraries and a seed must
/// give the same text everywhere.
uint64_t next_random(uint64_t (&state)[4]) {
  const uint64_t result = rotate_left(state[1] * 5, 7) * 9;
  const uint64_t shifted = state[1] << 17;
  state[2] ^= state[0];
  state[3] ^= state[1];
  state[1] ^= state[2];
  state[0] ^= state[3];
  state[2] ^= shifted;
  state[3] = rotate_left(state[3], 45);
  return result;
}

void seed_random(uint64_t seed, uint64_t (&state)[4]) {
  for (uint64_t& word : state) word = next_seed(seed);
}

/// Uniform in [0, 1) with 53 bits.
double next_uniform(uint64_t (&state)[4]) {
  return static_cast<double>(next_random(state) >> 11) * 0x1.0p-53;
}

Status check_range(const char* name, double value, double least, double greatest, bool least_allowed) {
  const bool inside =
      std::isfinite(value) && value <= greatest && (least_allowed ? value >= least : value > least);
  if (inside) return {};
  const std::string range = std::isinf(greatest)
                                ? fmt::format("{} {}", least_allowed ? "at least" : "above", least)
                                : fmt::format("in {}{}, {}]", least_allowed ? '[' : '(', least, greatest);
  return fail(ErrorCode::usage, fmt::format("{} must be {}, got {}", name, range, value));
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, int64_t vocabulary)
    : options_(options),
      vocabulary_(vocabulary),
      random_state_{},
      output_counts_(static_cast<size_t>(vocabulary)),
      seen_(static_cast<size_t>(vocabulary)) {
  candidates_.reserve(static_cast<size_t>(vocabulary));
  seed_random(options_.seed, random_state_);
}

Result<Sampler> Sampler::create(const SamplingOptions& options, int64_t vocabulary) {
  const double infinity = std::numeric_limits<double>::infinity();
  HEXLM_TRY(check_range("temperature", options.temperature, 0, infinity, true));
  HEXLM_TRY(check_range("top_k", options.top_k, 0, infinity, true));
  HEXLM_TRY(check_range("top_p", options.top_p, 0, 1, false));
  HEXLM_TRY(check_range("min_p", options.min_p, 0, 1, true));
  HEXLM_TRY(check_range("repetition_penalty", options.repetition_penalty, 0, infinity, false));
  HEXLM_TRY(check_range("presence_penalty", options.presence_penalty, -2, 2, true));
  HEXLM_TRY(check_range("frequency_penalty", options.frequency_penalty, -2, 2, true));
  if (vocabulary < 1) {
    return fail(ErrorCode::usage, fmt::format("a vocabulary must hold at least 1 id, got {}", vocabulary));
  }
  return Sampler(options, vocabulary);
}

void Sampler::reset() {
  std::fill(output_counts_.begin(), output_counts_.end(), 0U);
  std::fill(seen_.begin(), seen_.end(), uint8_t{0});
  seed_random(options_.seed, random_state_);
}

void Sampler::observe_prompt(std::span<const int32_t> tokens) {
  for (const int32_t id : tokens) {
    if (id >= 0 && id < vocabulary_) seen_[static_cast<size_t>(id)] = 1;
  }
}

float Sampler::penalized(float logit, size_t id) const {
  if (options_.repetition_penalty != 1 && seen_[id] != 0) {
    logit = logit < 0 ? logit * options_.repetition_penalty : logit / options_.repetition_penalty;
  }
  if (output_counts_[id] != 0) {
    logit -= options_.presence_penalty + options_.frequency_penalty * static_cast<float>(output_counts_[id]);
  }
  return logit;
}

Result<float> Sampler::checked(std::span<const float> logits, size_t id) const {
  const float value = penalized(logits[id], id);
  if (std::isnan(value) || value == std::numeric_limits<float>::infinity()) {
    return fail(
        ErrorCode::runtime, fmt::format("the logit of token {} is {}", id, logits[id]),
        "the weights or a kernel produced a value that is no number: check the model with `hexlm inspect`");
  }
  return value;
}

Result<int32_t> Sampler::best(std::span<const float> logits) const {
  const size_t count = std::min(logits.size(), static_cast<size_t>(vocabulary_));
  float highest = -std::numeric_limits<float>::infinity();
  int32_t best_id = -1;
  for (size_t id = 0; id < count; ++id) {
    HEXLM_ASSIGN(const float value, checked(logits, id));
    if (value > highest) {
      highest = value;
      best_id = static_cast<int32_t>(id);
    }
  }
  if (best_id < 0) return fail(ErrorCode::runtime, fmt::format("all {} logits are -infinity", count));
  return best_id;
}

Status Sampler::collect(std::span<const float> logits) {
  candidates_.clear();
  const size_t count = std::min(logits.size(), static_cast<size_t>(vocabulary_));
  for (size_t id = 0; id < count; ++id) {
    HEXLM_ASSIGN(const float value, checked(logits, id));
    if (!std::isinf(value)) candidates_.push_back({value, static_cast<int32_t>(id)});
  }
  if (candidates_.empty()) return fail(ErrorCode::runtime, fmt::format("all {} logits are -infinity", count));
  return {};
}

void Sampler::keep_top_k() {
  const auto k = static_cast<size_t>(options_.top_k);
  if (k == 0 || k >= candidates_.size()) return;
  const auto kth = candidates_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(candidates_.begin(), kth, candidates_.end(), before);
  const float threshold = kth->value;
  // Tokens as good as the k-th stay, as in transformers.
  const auto end = std::partition(kth + 1, candidates_.end(), [threshold](const Candidate& candidate) {
    return candidate.value >= threshold;
  });
  candidates_.erase(end, candidates_.end());
  std::sort(candidates_.begin(), candidates_.end(), before);
}

/// Leaves candidates sorted, best first.
void Sampler::keep_top_p() {
  double total = 0;
  for (const Candidate& candidate : candidates_) total += weight(candidate);
  // A heap, so that only what is kept gets sorted: a nucleus is small, a vocabulary is not.
  const auto after = [](const Candidate& a, const Candidate& b) { return before(b, a); };
  std::make_heap(candidates_.begin(), candidates_.end(), after);
  auto heap_end = candidates_.end();
  double cumulative = 0;
  while (heap_end != candidates_.begin()) {
    std::pop_heap(candidates_.begin(), heap_end, after);
    --heap_end;
    cumulative += weight(*heap_end);
    if (cumulative >= options_.top_p * total) break;
  }
  std::reverse(heap_end, candidates_.end());
  candidates_.erase(candidates_.begin(), heap_end);
}

int32_t Sampler::draw() {
  double total = 0;
  for (const Candidate& candidate : candidates_) total += weight(candidate);
  double remaining = next_uniform(random_state_) * total;
  for (const Candidate& candidate : candidates_) {
    remaining -= weight(candidate);
    if (remaining < 0) return candidate.id;
  }
  return candidates_.back().id;
}

double Sampler::weight(const Candidate& candidate) { return std::exp(static_cast<double>(candidate.value)); }

bool Sampler::before(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

Result<int32_t> Sampler::pick(std::span<const float> logits) {
  if (options_.temperature == 0) return best(logits);
  HEXLM_TRY(collect(logits));
  // Dividing by a tiny temperature may overflow; relative to the best, it overflows to −infinity only.
  const float highest = std::min_element(candidates_.begin(), candidates_.end(), before)->value;
  for (Candidate& candidate : candidates_) {
    candidate.value = (candidate.value - highest) / options_.temperature;
  }
  keep_top_k();
  if (options_.top_p < 1) keep_top_p();
  if (options_.min_p > 0) {
    // The best candidate's weight is 1, so min_p · p_max is min_p.
    std::erase_if(candidates_,
                  [this](const Candidate& candidate) { return weight(candidate) < options_.min_p; });
  }
  return draw();
}

Result<int32_t> Sampler::sample(std::span<const float> logits) {
  HEXLM_ASSIGN(const int32_t id, pick(logits));
  seen_[static_cast<size_t>(id)] = 1;
  ++output_counts_[static_cast<size_t>(id)];
  return id;
}

}  // namespace hexlm
