#include "evaluation/bench.hpp"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>

#include "base/text.hpp"
#include "hexlm/common.hpp"
#include "hexlm/environment.hpp"
#include "hexlm/verbs.hpp"
#include "quantization/resources.hpp"

namespace hexlm::tool {
namespace {

Json rows_json(const BenchResult& result, const SessionOptions& options) {
  Json rows = Json::array();
  for (const BenchRow& row : result.rows) {
    rows.push_back({{"name", row.name},
                    {"backend", options.backend},
                    {"threads", options.threads},
                    {"mean", row.mean},
                    {"stddev", row.stddev},
                    {"median", row.median},
                    {"unit", row.unit},
                    {"samples", row.samples}});
  }
  return rows;
}

/// "256x256", several with commas.
Result<std::vector<ImageSize>> read_sizes(const std::string& text) {
  std::vector<ImageSize> sizes;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    ImageSize size;
    int used = 0;
    // Five digits: beyond any image that is decoded, and no overflow.
    const int read = std::sscanf(part.c_str(), "%5dx%5d%n", &size.width, &size.height, &used);
    if (read != 2 || static_cast<size_t>(used) != part.size() || size.width < 1 || size.height < 1) {
      return fail(ErrorCode::usage, fmt::format("--image: '{}' is no size, expected WIDTHxHEIGHT", part));
    }
    sizes.push_back(size);
    at = end + 1;
  }
  return sizes;
}

Status bench_images(const Arguments& arguments, const Opened& opened, const BenchOptions& options,
                    BenchResult& result) {
  HEXLM_ASSIGN(const std::vector<ImageSize> sizes, read_sizes(arguments.text("image")));
  if (sizes.empty()) return {};
  VisionOptions vision;
  vision.backend = opened.session->options().backend;
  vision.threads = opened.session->options().threads;
  vision.precision = opened.session->options().precision;
  HEXLM_ASSIGN(const auto encoder, VisionEncoder::create(opened.model, vision));
  for (const ImageSize size : sizes) {
    HEXLM_ASSIGN(BenchRow row, bench_vision(*encoder, size.width, size.height, options.repetitions));
    result.rows.push_back(std::move(row));
  }
  return {};
}

Table table_of(const BenchResult& result, const Opened& opened) {
  const SessionOptions& options = opened.session->options();
  Table table;
  table.columns = {{"model"},     {"size", true}, {"bits/weight", true}, {"backend"},     {"threads", true},
                   {"precision"}, {"name"},       {"tok/s", true},       {"median", true}};
  for (const BenchRow& row : result.rows) {
    table.rows.push_back(
        {opened.model->config().model_type, format_bytes(opened.model->weight_bytes()),
         fmt::format("{:.2f}", opened.model->bits_per_weight()), options.backend,
         std::to_string(options.threads), std::string(to_string(options.precision)), row.name,
         fmt::format("{:.2f} ± {:.2f}{}", row.mean, row.stddev, row.unit == "tok/s" ? "" : " " + row.unit),
         fmt::format("{:.2f}", row.median)});
  }
  return table;
}

/// For programs: the columns of the JSON rows, a number a cell.
Table csv_table(const BenchResult& result, const SessionOptions& options) {
  Table table;
  table.columns = {{"name"}, {"backend"}, {"threads"}, {"precision"},
                   {"mean"}, {"stddev"},  {"median"},  {"unit"}};
  for (const BenchRow& row : result.rows) {
    table.rows.push_back({row.name, options.backend, std::to_string(options.threads),
                          std::string(to_string(options.precision)), fmt::format("{:.6g}", row.mean),
                          fmt::format("{:.6g}", row.stddev), fmt::format("{:.6g}", row.median), "tok/s"});
  }
  return table;
}

}  // namespace

Result<int> run_bench(Arguments& arguments) {
  BenchOptions options;
  options.prompt_tokens = arguments.integers("prompt-tokens");
  options.generated_tokens = arguments.integers("generated-tokens");
  options.depths = arguments.integers("depth");
  options.repetitions = static_cast<int>(arguments.integer("repetitions"));
  HEXLM_ASSIGN(const Opened opened, open_session(arguments));
  HEXLM_ASSIGN(BenchResult result, bench(*opened.session, options));
  HEXLM_TRY(bench_images(arguments, opened, options, result));
  HEXLM_ASSIGN(Json environment, describe_environment());
  environment["model"] = opened.model->folder();
  environment["precision"] = to_string(opened.session->options().precision);
  const uint64_t peak = peak_memory_bytes();
  Report report;
  report.json = {{"rows", rows_json(result, opened.session->options())},
                 {"load_s", opened.load_s},
                 {"ttft_s", result.ttft_s},
                 {"peak_memory_bytes", peak},
                 {"bits_per_weight", opened.model->bits_per_weight()},
                 {"parameters", opened.model->parameter_count()},
                 {"placement", opened.session->placement()},
                 {"environment", std::move(environment)}};
  report.rows_key = "rows";
  const Format format = format_of(arguments);
  report.table =
      format == Format::csv ? csv_table(result, opened.session->options()) : table_of(result, opened);
  print(report, format);
  if (format == Format::text) {
    print(fmt::format("\nload {:.2f} s, first token after {:.3f} s, peak memory {}\n", opened.load_s,
                      result.ttft_s, format_bytes(peak)));
  }
  print_placement(*opened.session);
  return 0;
}

}  // namespace hexlm::tool
