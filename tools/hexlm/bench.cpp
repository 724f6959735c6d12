#include "evaluation/bench.hpp"

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

Json to_json(const BenchRow& row, const SessionOptions& options) {
  return {{"name", row.name}, {"backend", options.backend}, {"threads", options.threads},
          {"mean", row.mean}, {"stddev", row.stddev},       {"median", row.median},
          {"unit", row.unit}, {"samples", row.samples}};
}

Json to_json(const ImageBenchRow& image, const SessionOptions& options) {
  Json json = to_json(image.row, options);
  json["image_tokens"] = image.tokens;
  json["mean_s"] = image.mean_s;
  json["stddev_s"] = image.stddev_s;
  json["preprocess_s"] = image.preprocess_s;
  json["tower_s"] = image.tower_s;
  return json;
}

Json rows_json(const BenchResult& result, const std::vector<ImageBenchRow>& images,
               const SessionOptions& options) {
  Json rows = Json::array();
  for (const BenchRow& row : result.rows) rows.push_back(to_json(row, options));
  for (const ImageBenchRow& image : images) rows.push_back(to_json(image, options));
  return rows;
}

/// What the table has no columns for.
std::string seconds_text(const std::vector<ImageBenchRow>& images) {
  std::string text;
  for (const ImageBenchRow& image : images) {
    text += fmt::format("{}: {} tokens, {:.4f} ± {:.4f} s an image: preprocess {:.4f} s, tower {:.4f} s\n",
                        image.row.name, image.tokens, image.mean_s, image.stddev_s, image.preprocess_s,
                        image.tower_s);
  }
  return text;
}

/// "256x256"
Result<ImageSize> parse_image_size(const std::string& text) {
  const std::vector<std::string_view> sides = split(text, 'x');
  std::array<int64_t, 2> values{};
  bool valid = sides.size() == 2;
  for (size_t i = 0; valid && i < 2; ++i) {
    valid = parse_integer(sides[i], values[i]) && values[i] > 0 && values[i] <= 1 << 20;
  }
  if (valid) return ImageSize{static_cast<int>(values[0]), static_cast<int>(values[1])};
  return fail(
      ErrorCode::usage,
      fmt::format("--image must be a width and a height in pixels such as 256x256, got \"{}\"", text));
}

Result<std::vector<ImageSize>> parse_image_sizes(const Arguments& arguments) {
  std::vector<ImageSize> sizes;
  for (const std::string& text : arguments.texts("image")) {
    HEXLM_ASSIGN(const ImageSize size, parse_image_size(text));
    sizes.push_back(size);
  }
  return sizes;
}

Result<std::vector<ImageBenchRow>> bench_images(Images& images, const std::vector<ImageSize>& sizes,
                                                int repetitions) {
  std::vector<ImageBenchRow> rows;
  for (const ImageSize& size : sizes) {
    HEXLM_ASSIGN(VisionEncoder* const encoder, images.encoder());
    HEXLM_ASSIGN(ImageBenchRow row, bench_image(*encoder, size, repetitions));
    rows.push_back(std::move(row));
  }
  return rows;
}

Table table_of(const BenchResult& result, const std::vector<ImageBenchRow>& images, const Opened& opened) {
  const SessionOptions& options = opened.session->options();
  Table table;
  table.columns = {{"model"},     {"size", true}, {"bits/weight", true}, {"backend"},      {"threads", true},
                   {"precision"}, {"test"},       {"mean", true},        {"median", true}, {"unit"}};
  std::vector<BenchRow> rows = result.rows;
  for (const ImageBenchRow& image : images) rows.push_back(image.row);
  for (const BenchRow& row : rows) {
    table.rows.push_back({opened.model->config().model_type, format_bytes(opened.model->weight_bytes()),
                          fmt::format("{:.2f}", opened.model->bits_per_weight()), options.backend,
                          std::to_string(options.threads), std::string(to_string(options.precision)),
                          row.name, fmt::format("{:.2f} ± {:.2f}", row.mean, row.stddev),
                          fmt::format("{:.2f}", row.median), row.unit});
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
  if (!sizes.empty()) HEXLM_TRY(images.encoder());
  HEXLM_TRY(start_session(arguments, opened));
  HEXLM_ASSIGN(const BenchResult result, bench(*opened.session, options));
  HEXLM_ASSIGN(const std::vector<ImageBenchRow> image_rows, bench_images(images, sizes, options.repetitions));
  HEXLM_ASSIGN(Json environment, describe_environment());
  environment["model"] = opened.model->folder();
  environment["precision"] = to_string(opened.session->options().precision);
  const uint64_t peak = peak_memory_bytes();
  Report report;
  report.json = {{"rows", rows_json(result, image_rows, opened.session->options())},
                 {"load_s", opened.load_s},
                 {"vision_load_s", images.timings().load_s},
                 {"ttft_s", result.ttft_s},
                 {"peak_memory_bytes", peak},
                 {"bits_per_weight", opened.model->bits_per_weight()},
                 {"parameters", opened.model->parameter_count()},
                 {"placement", images.placement(*opened.session)},
                 {"environment", std::move(environment)}};
  report.rows_key = "rows";
  report.table = table_of(result, image_rows, opened);
  const Format format = format_of(arguments);
  print(report, format);
  if (format == Format::text) {
    print("\n" + seconds_text(image_rows));
    print(fmt::format("load {:.2f} s, first token after {:.3f} s, peak memory {}\n", opened.load_s,
                      result.ttft_s, format_bytes(peak)));
  }
  print_placement(images.placement(*opened.session));
  return 0;
}

}  // namespace hexlm::tool
