#include "evaluation/bench.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "base/text.hpp"
#include "evaluation/bench_images.hpp"
#include "hexlm/common.hpp"
#include "hexlm/environment.hpp"
#include "hexlm/images.hpp"
#include "hexlm/verbs.hpp"
#include "quantization/resources.hpp"

namespace hexlm::tool {
namespace {

struct Measured {
  BenchResult tokens;
  std::vector<ImageBenchRow> images;

  std::vector<BenchRow> rows() const {
    std::vector<BenchRow> all = tokens.rows;
    for (const ImageBenchRow& image : images) all.push_back(image.row);
    return all;
  }
};

Json row_json(const BenchRow& row, const SessionOptions& options) {
  return {{"name", row.name}, {"backend", options.backend}, {"threads", options.threads},
          {"mean", row.mean}, {"stddev", row.stddev},       {"median", row.median},
          {"unit", row.unit}, {"samples", row.samples}};
}

Json rows_json(const Measured& measured, const SessionOptions& options) {
  Json rows = Json::array();
  for (const BenchRow& row : measured.tokens.rows) rows.push_back(row_json(row, options));
  for (const ImageBenchRow& image : measured.images) {
    rows.push_back(row_json(image.row, options));
    rows.back()["image_tokens"] = image.tokens;
    rows.back()["tower_s"] = image.tower_s;
    rows.back()["tower_stddev_s"] = image.tower_stddev_s;
    rows.back()["preprocess_s"] = image.preprocess_s;
  }
  return rows;
}

/// What the table has no columns for.
std::string seconds_text(const std::vector<ImageBenchRow>& images) {
  std::string text;
  for (const ImageBenchRow& image : images) {
    text +=
        fmt::format("{}: {} tokens, tower {:.4f} ± {:.4f} s, before it preprocessing {:.4f} s\n",
                    image.row.name, image.tokens, image.tower_s, image.tower_stddev_s, image.preprocess_s);
  }
  return text;
}

/// "256x256"
Result<ImageSize> parse_image_size(std::string_view text) {
  const std::vector<std::string_view> sides = split(text, 'x');
  std::array<int64_t, 2> values{};
  bool valid = sides.size() == 2;
  for (size_t i = 0; valid && i < 2; ++i) {
    valid = parse_integer(sides[i], values[i]) && values[i] > 0 && values[i] <= 1 << 20;
  }
  if (valid) return ImageSize{static_cast<int>(values[0]), static_cast<int>(values[1])};
  return fail(ErrorCode::usage,
              fmt::format("--image must be a width and a height in pixels, got \"{}\"", text),
              "write 256x256, several with commas");
}

Result<std::vector<ImageSize>> parse_image_sizes(const Arguments& arguments) {
  std::vector<ImageSize> sizes;
  for (const std::string& text : arguments.texts("image")) {
    for (const std::string_view part : split(text, ',')) {
      HEXLM_ASSIGN(const ImageSize size, parse_image_size(part));
      sizes.push_back(size);
    }
  }
  return sizes;
}

bool wants_tokens(const BenchOptions& options) {
  const auto some = [](int64_t count) { return count != 0; };
  return std::any_of(options.prompt_tokens.begin(), options.prompt_tokens.end(), some) ||
         std::any_of(options.generated_tokens.begin(), options.generated_tokens.end(), some);
}

Result<Measured> measure(Session& session, Images& images, const BenchOptions& options,
                         const std::vector<ImageSize>& sizes) {
  Measured measured;
  // With images alone to measure there need be no tokens.
  if (sizes.empty() || wants_tokens(options)) {
    HEXLM_ASSIGN(measured.tokens, bench(session, options));
  }
  for (const ImageSize& size : sizes) {
    HEXLM_ASSIGN(VisionEncoder* const encoder, images.encoder());
    HEXLM_ASSIGN(ImageBenchRow row, bench_image(*encoder, size, options.repetitions));
    measured.images.push_back(std::move(row));
  }
  return measured;
}

Table table_of(const Measured& measured, const Opened& opened) {
  const SessionOptions& options = opened.session->options();
  Table table;
  table.columns = {{"model"},     {"size", true}, {"bits/weight", true}, {"backend"},      {"threads", true},
                   {"precision"}, {"name"},       {"mean", true},        {"median", true}, {"unit"}};
  for (const BenchRow& row : measured.rows()) {
    table.rows.push_back({opened.model->config().model_type, format_bytes(opened.model->weight_bytes()),
                          fmt::format("{:.2f}", opened.model->bits_per_weight()), options.backend,
                          std::to_string(options.threads), std::string(to_string(options.precision)),
                          row.name, fmt::format("{:.2f} ± {:.2f}", row.mean, row.stddev),
                          fmt::format("{:.2f}", row.median), row.unit});
  }
  return table;
}

/// For programs: the columns of the JSON rows, a number a cell.
Table csv_table(const Measured& measured, const SessionOptions& options) {
  Table table;
  table.columns = {{"name"}, {"backend"}, {"threads"}, {"precision"},
                   {"mean"}, {"stddev"},  {"median"},  {"unit"}};
  for (const BenchRow& row : measured.rows()) {
    table.rows.push_back({row.name, options.backend, std::to_string(options.threads),
                          std::string(to_string(options.precision)), fmt::format("{:.6g}", row.mean),
                          fmt::format("{:.6g}", row.stddev), fmt::format("{:.6g}", row.median), row.unit});
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
  HEXLM_ASSIGN(const std::vector<ImageSize> sizes, parse_image_sizes(arguments));
  HEXLM_ASSIGN(Opened opened, open_timed_model(arguments));
  Images images(arguments, opened.model);
  // A model that sees no images is told before anything is measured.
  if (!sizes.empty()) HEXLM_TRY(images.encoder());
  HEXLM_TRY(start_session(arguments, opened));
  const SessionOptions& used = opened.session->options();
  HEXLM_ASSIGN(const Measured measured, measure(*opened.session, images, options, sizes));
  HEXLM_ASSIGN(Json environment, describe_environment());
  environment["model"] = opened.model->folder();
  environment["precision"] = to_string(used.precision);
  const uint64_t peak = peak_memory_bytes();
  Report report;
  report.json = {{"rows", rows_json(measured, used)},
                 {"load_s", opened.load_s},
                 {"vision_load_s", images.timings().load_s},
                 {"ttft_s", measured.tokens.ttft_s},
                 {"peak_memory_bytes", peak},
                 {"bits_per_weight", opened.model->bits_per_weight()},
                 {"parameters", opened.model->parameter_count()},
                 {"placement", images.placement(*opened.session)},
                 {"environment", std::move(environment)}};
  // Not measured when only images were.
  if (measured.tokens.rows.empty()) report.json["ttft_s"] = nullptr;
  report.rows_key = "rows";
  const Format format = format_of(arguments);
  report.table = format == Format::csv ? csv_table(measured, used) : table_of(measured, opened);
  print(report, format);
  if (format == Format::text) {
    const std::string first = measured.tokens.rows.empty()
                                  ? std::string()
                                  : fmt::format(", first token after {:.3f} s", measured.tokens.ttft_s);
    print(fmt::format("\n{}load {:.2f} s{}, peak memory {}\n", seconds_text(measured.images), opened.load_s,
                      first, format_bytes(peak)));
  }
  print_placement(images.placement(*opened.session));
  return 0;
}

}  // namespace hexlm::tool
