#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/session.hpp"

namespace hexlm {

/// Every combination of a depth with a count; a count of 0 stands for none.
struct BenchOptions {
  std::vector<int64_t> prompt_tokens{512};
  std::vector<int64_t> generated_tokens{64};
  std::vector<int64_t> depths{0};
  int repetitions = 5;
  double cooldown_s = 0;  ///< rest before each row, so that heat from the one before does not count
};

/// One row, named as in docs/cli.md: pp512, tg64, tg64@d512, vision256x256.
struct BenchRow {
  std::string name;
  std::string unit = "tok/s";  ///< "images/s" for a vision tower
  double mean = 0;
  double stddev = 0;
  double median = 0;
  double warmup = 0;  ///< the first run, which counts for nothing
  std::vector<double> samples;
};
/// Fills mean, standard deviation and median from the samples.
void summarize(BenchRow& row);

struct BenchResult {
  std::vector<BenchRow> rows;
  double ttft_s = 0;  ///< one-token prompt to first token on an empty cache, first use of the session
};

/// Random tokens, one warm-up of each row apart, then the repetitions.
Result<BenchResult> bench(Session& session, const BenchOptions& options);

}  // namespace hexlm
