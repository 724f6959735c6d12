#include "evaluation/bench.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <random>
#include <thread>

#include "base/progress.hpp"

namespace hexlm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Always the same tokens, so that two runs measure the same work.
std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary) {
  std::mt19937_64 generator(count);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(generator() % static_cast<uint64_t>(vocabulary));
  }
  return tokens;
}

Status prefill(Session& session, std::span<const int32_t> tokens) {
  auto logits = session.forward_last(tokens);
  return logits ? Status() : Status(tl::unexpected<Error>(std::move(logits).error()));
}

Status decode(Session& session, std::span<const int32_t> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) HEXLM_TRY(prefill(session, tokens.subspan(i, 1)));
  return {};
}

using Work = std::function<Status(Session&, std::span<const int32_t>)>;

/// Rests in pieces, so that an interrupt is not kept waiting.
Status cool_down(double seconds) {
  const auto start = Clock::now();
  while (seconds_since(start) < seconds) {
    if (interrupted()) return fail(ErrorCode::interrupted, "interrupted");
    const double rest = std::min(0.1, seconds - seconds_since(start));
    std::this_thread::sleep_for(std::chrono::duration<double>(std::max(rest, 0.0)));
  }
  return {};
}

/// Measures `work` on `count` tokens after `depth` others: once unmeasured, then `repetitions` times.
Result<BenchRow> measure(Session& session, const std::string& kind, int64_t count, int64_t depth,
                         const BenchOptions& options, const Work& work) {
  HEXLM_TRY(cool_down(options.cooldown_s));
  BenchRow row;
  row.name = depth == 0 ? fmt::format("{}{}", kind, count) : fmt::format("{}{}@d{}", kind, count, depth);
  const int64_t vocabulary = session.model().usable_vocabulary();
  const std::vector<int32_t> tokens = random_tokens(count, vocabulary);
  session.reset();
  if (depth > 0) HEXLM_TRY(prefill(session, random_tokens(depth, vocabulary)));
  HEXLM_ASSIGN(const auto start_state, session.state().snapshot());
  for (int i = -1; i < options.repetitions; ++i) {
    HEXLM_TRY(session.state().restore(*start_state));
    const auto start = Clock::now();
    HEXLM_TRY(work(session, tokens));
    const double speed = static_cast<double>(count) / seconds_since(start);
    if (i < 0) {
      row.warmup = speed;
    } else {
      row.samples.push_back(speed);
    }
  }
  summarize(row);
  return row;
}

Status check(const Session& session, const BenchOptions& options) {
  if (options.repetitions < 1) {
    return fail(ErrorCode::usage,
                fmt::format("at least 1 repetition is needed, got {}", options.repetitions));
  }
  const auto none = [](const std::vector<int64_t>& counts) {
    return std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count == 0; });
  };
  if (none(options.prompt_tokens) && none(options.generated_tokens)) {
    return fail(ErrorCode::usage, "nothing to measure: no length to prefill and none to decode",
                "give a length other than 0 with -p or -n");
  }
  for (const int64_t depth : options.depths) {
    for (const auto* counts : {&options.prompt_tokens, &options.generated_tokens}) {
      for (const int64_t count : *counts) {
        if (count < 0 || depth < 0) {
          return fail(ErrorCode::usage,
                      fmt::format("a number of tokens can't be negative, got {}", std::min(count, depth)));
        }
        if (count > session.capacity() - depth) {
          return fail(ErrorCode::limit, fmt::format("{} tokens at depth {} don't fit the context of {}",
                                                    count, depth, session.capacity()));
        }
      }
    }
  }
  return {};
}

}  // namespace

void summarize(BenchRow& row) {
  const auto count = static_cast<double>(row.samples.size());
  for (const double sample : row.samples) row.mean += sample / count;
  double squares = 0;
  for (const double sample : row.samples) squares += (sample - row.mean) * (sample - row.mean);
  row.stddev = row.samples.size() < 2 ? 0 : std::sqrt(squares / (count - 1));
  std::vector<double> sorted = row.samples;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  row.median = sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

Result<BenchResult> bench(Session& session, const BenchOptions& options) {
  HEXLM_TRY(check(session, options));
  BenchResult result;
  session.reset();
  const std::vector<int32_t> first = random_tokens(1, session.model().usable_vocabulary());
  const auto start = Clock::now();
  HEXLM_TRY(prefill(session, first));
  result.ttft_s = seconds_since(start);
  for (const int64_t depth : options.depths) {
    for (const int64_t count : options.prompt_tokens) {
      if (count == 0) continue;
      HEXLM_ASSIGN(BenchRow row, measure(session, "pp", count, depth, options, prefill));
      result.rows.push_back(std::move(row));
    }
    for (const int64_t count : options.generated_tokens) {
      if (count == 0) continue;
      HEXLM_ASSIGN(BenchRow row, measure(session, "tg", count, depth, options, decode));
      result.rows.push_back(std::move(row));
    }
  }
  session.reset();
  return result;
}

}  // namespace hexlm
