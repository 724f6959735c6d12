#include "evaluation/bench.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <optional>

#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "evaluation/bench_baseline.hpp"
#include "evaluation/bench_images.hpp"
#include "evaluation/profile.hpp"
#include "evaluation/sensors.hpp"
#include "hexlm/bench_grid.hpp"
#include "hexlm/common.hpp"
#include "hexlm/environment.hpp"
#include "hexlm/images.hpp"
#include "hexlm/report_page.hpp"
#include "hexlm/verbs.hpp"
#include "quantization/resources.hpp"

namespace hexlm::tool {
namespace {

/// What one setting of the grid gave.
struct Measured {
  GridSetting setting;
  BenchResult tokens;
  std::vector<ImageBenchRow> images;
  double load_s = 0;
  double vision_load_s = 0;
  std::string placement;
  Json sensors;
  std::vector<Profile> profiles;
  double bandwidth = 0;
  uint64_t peak_memory = 0;  ///< of the program so far, without what profiling takes

  std::vector<BenchRow> rows() const {
    std::vector<BenchRow> all = tokens.rows;
    for (const ImageBenchRow& image : images) all.push_back(image.row);
    return all;
  }
};

Json row_json(const BenchRow& row, const GridSetting& setting) {
  return {{"name", row.name},      {"backend", setting.backend},     {"threads", setting.threads},
          {"mean", row.mean},      {"stddev", row.stddev},           {"median", row.median},
          {"unit", row.unit},      {"precision", setting.precision}, {"warmup", row.warmup},
          {"samples", row.samples}};
}

void add_rows(const Measured& measured, Json& rows) {
  for (const BenchRow& row : measured.tokens.rows) rows.push_back(row_json(row, measured.setting));
  for (const ImageBenchRow& image : measured.images) {
    rows.push_back(row_json(image.row, measured.setting));
    rows.back()["image_tokens"] = image.tokens;
    rows.back()["tower_s"] = image.tower_s;
    rows.back()["tower_stddev_s"] = image.tower_stddev_s;
    rows.back()["preprocess_s"] = image.preprocess_s;
  }
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

/// Tokens of the profiled passes: the first lengths that were asked for, decoding kept short.
Status add_profiles(Session& session, const BenchOptions& options, Measured& measured) {
  constexpr int64_t most_decoded = 16;
  const auto first = [](const std::vector<int64_t>& counts) { return counts.empty() ? 0 : counts[0]; };
  measured.bandwidth = measure_memory_bandwidth(session.options().threads);
  const int64_t prompt = std::min(first(options.prompt_tokens), session.options().chunk);
  const int64_t decoded = std::min(first(options.generated_tokens), most_decoded);
  for (const auto& [count, decode] : {std::pair{prompt, false}, std::pair{decoded, true}}) {
    if (count == 0) continue;
    HEXLM_ASSIGN(Profile made, profile(session, count, decode));
    measured.profiles.push_back(std::move(made));
  }
  return {};
}

struct BenchPlan {
  BenchOptions options;
  std::vector<ImageSize> sizes;
  std::vector<GridSetting> grid;
};

Result<BenchPlan> read_plan(const Arguments& arguments) {
  BenchPlan plan;
  plan.options.prompt_tokens = arguments.integers("prompt-tokens");
  plan.options.generated_tokens = arguments.integers("generated-tokens");
  plan.options.depths = arguments.integers("depth");
  plan.options.repetitions = static_cast<int>(arguments.integer("repetitions"));
  plan.options.cooldown_s = arguments.number("cooldown");
  HEXLM_ASSIGN(plan.sizes, parse_image_sizes(arguments));
  HEXLM_ASSIGN(plan.grid, read_grid(arguments));
  if (arguments.has("trace") && !arguments.toggle("profile"))
    return fail(ErrorCode::usage, "--trace needs --profile", "add --profile");
  return plan;
}

/// Opens the model anew for every setting, so that each has its own load time.
Result<Measured> measure(Arguments arguments, const GridSetting& setting, const BenchPlan& plan,
                         std::shared_ptr<const Model>& model) {
  Measured measured;
  measured.setting = setting;
  HEXLM_ASSIGN(Opened opened, open_timed_model(arguments));
  Images images(arguments, opened.model);
  // A model that sees no images is told before anything is measured.
  if (!plan.sizes.empty()) HEXLM_TRY(images.encoder());
  HEXLM_TRY(start_session(arguments, opened));
  const SensorReading before = read_sensors();
  // With images alone to measure there need be no tokens.
  if (plan.sizes.empty() || wants_tokens(plan.options)) {
    HEXLM_ASSIGN(measured.tokens, bench(*opened.session, plan.options));
  }
  for (const ImageSize& size : plan.sizes) {
    HEXLM_ASSIGN(VisionEncoder* const encoder, images.encoder());
    HEXLM_ASSIGN(ImageBenchRow row, bench_image(*encoder, size, plan.options.repetitions));
    measured.images.push_back(std::move(row));
  }
  measured.sensors = sensors_json(before, read_sensors());
  measured.peak_memory = peak_memory_bytes();
  if (arguments.toggle("profile")) HEXLM_TRY(add_profiles(*opened.session, plan.options, measured));
  measured.load_s = opened.load_s;
  measured.vision_load_s = images.timings().load_s;
  measured.placement = images.placement(*opened.session);
  model = opened.model;
  return measured;
}

Table table_of(const std::vector<Measured>& all, const Model& model) {
  Table table;
  table.columns = {{"model"},     {"size", true}, {"bits/weight", true}, {"backend"},      {"threads", true},
                   {"precision"}, {"name"},       {"mean", true},        {"median", true}, {"unit"}};
  for (const Measured& measured : all) {
    for (const BenchRow& row : measured.rows()) {
      table.rows.push_back({model.config().model_type, format_bytes(model.weight_bytes()),
                            fmt::format("{:.2f}", model.bits_per_weight()), measured.setting.backend,
                            std::to_string(measured.setting.threads), measured.setting.precision, row.name,
                            fmt::format("{:.2f} ± {:.2f}", row.mean, row.stddev),
                            fmt::format("{:.2f}", row.median), row.unit});
    }
  }
  return table;
}

/// For programs: the columns of the JSON rows, a number a cell.
Table csv_table(const std::vector<Measured>& all) {
  Table table;
  table.columns = {{"name"}, {"backend"}, {"threads"}, {"precision"},
                   {"mean"}, {"stddev"},  {"median"},  {"unit"}};
  for (const Measured& measured : all) {
    for (const BenchRow& row : measured.rows()) {
      table.rows.push_back({row.name, measured.setting.backend, std::to_string(measured.setting.threads),
                            measured.setting.precision, fmt::format("{:.6g}", row.mean),
                            fmt::format("{:.6g}", row.stddev), fmt::format("{:.6g}", row.median), row.unit});
    }
  }
  return table;
}

Json settings_json(const std::vector<Measured>& all) {
  Json settings = Json::array();
  for (const Measured& measured : all) {
    settings.push_back(
        {{"backend", measured.setting.backend},
         {"threads", measured.setting.threads},
         {"precision", measured.setting.precision},
         {"load_s", measured.load_s},
         {"ttft_s", measured.tokens.rows.empty() ? Json(nullptr) : Json(measured.tokens.ttft_s)},
         {"placement", measured.placement},
         {"sensors", measured.sensors}});
    if (measured.profiles.empty()) continue;
    settings.back()["memory_bytes_per_s"] = measured.bandwidth;
    for (const Profile& made : measured.profiles)
      settings.back()["profiles"].push_back(profile_json(made, measured.bandwidth));
  }
  return settings;
}

/// Nodes of a profile that the text shows.
constexpr size_t shown_profile_nodes = 12;

std::string profiles_text(const Json& settings) {
  std::string text;
  for (const Json& setting : settings) {
    if (!setting.contains("profiles")) continue;
    text += fmt::format("\nmemory read at {:.1f} GB/s by {} threads\n",
                        setting["memory_bytes_per_s"].get<double>() / 1e9, setting["threads"].get<int>());
    for (const Json& made : setting["profiles"]) {
      Table table;
      table.columns = {{made["name"].get<std::string>()},
                       {"op"},
                       {"share", true},
                       {"ms", true},
                       {"GB/s", true},
                       {"of memory", true},
                       {"GMAC/s", true}};
      for (size_t i = 0; i < std::min(made["nodes"].size(), shown_profile_nodes); ++i) {
        const Json& node = made["nodes"][i];
        table.rows.push_back({node["name"].get<std::string>(), node["op"].get<std::string>(),
                              fmt::format("{:.1f} %", 100 * node["share"].get<double>()),
                              fmt::format("{:.3f}", 1000 * node["seconds"].get<double>()),
                              fmt::format("{:.2f}", node["gb_per_s"].get<double>()),
                              fmt::format("{:.0f} %", 100 * node["memory_share"].get<double>()),
                              fmt::format("{:.2f}", node["gmac_per_s"].get<double>())});
      }
      text += "\n" + to_text(table);
    }
  }
  return text;
}

std::string baseline_text(const std::vector<BaselineRow>& rows) {
  if (rows.empty()) return "\nthe baseline has none of these rows\n";
  Table table;
  table.columns = {{"against the baseline"},
                   {"threads", true},
                   {"before", true},
                   {"now", true},
                   {"change", true},
                   {"noise", true},
                   {""}};
  for (const BaselineRow& row : rows) {
    table.rows.push_back({row.name, std::to_string(row.threads), fmt::format("{:.2f}", row.before),
                          fmt::format("{:.2f}", row.after), fmt::format("{:+.1f} %", 100 * row.change),
                          fmt::format("{:.1f} %", 100 * row.noise), std::string(to_string(row.verdict))});
  }
  return "\n" + to_text(table);
}

Status write_trace(const Arguments& arguments, const std::vector<Measured>& all) {
  if (!arguments.has("trace")) return {};
  std::vector<Profile> profiles;
  for (const Measured& measured : all)
    profiles.insert(profiles.end(), measured.profiles.begin(), measured.profiles.end());
  return write_file_atomically(arguments.text("trace"), chrome_trace(profiles).dump() + "\n");
}

/// Keys of the whole are those of the first setting; each setting has its own below `settings`.
Result<Json> bench_json(const std::vector<Measured>& all, const Model& model) {
  const Measured& first = all[0];
  HEXLM_ASSIGN(Json environment, describe_environment());
  environment["model"] = model.folder();
  environment["precision"] = first.setting.precision;
  Json json = {{"rows", Json::array()},
               {"load_s", first.load_s},
               {"vision_load_s", first.vision_load_s},
               // Not measured when only images were.
               {"ttft_s", first.tokens.rows.empty() ? Json(nullptr) : Json(first.tokens.ttft_s)},
               {"peak_memory_bytes", first.profiles.empty() ? all.back().peak_memory : first.peak_memory},
               {"bits_per_weight", model.bits_per_weight()},
               {"parameters", model.parameter_count()},
               {"weight_bytes", model.weight_bytes()},
               {"placement", first.placement},
               {"settings", settings_json(all)},
               {"environment", std::move(environment)}};
  for (const Measured& measured : all) add_rows(measured, json["rows"]);
  return json;
}

std::string footer(const std::vector<Measured>& all, const Json& json) {
  std::string text = "\n";
  for (const Measured& measured : all) text += seconds_text(measured.images);
  const Measured& first = all[0];
  const std::string token = first.tokens.rows.empty()
                                ? std::string()
                                : fmt::format(", first token after {:.3f} s", first.tokens.ttft_s);
  return text + fmt::format("load {:.2f} s{}, peak memory {}\n", first.load_s, token,
                            format_bytes(json["peak_memory_bytes"].get<uint64_t>()));
}

}  // namespace

Result<int> run_bench(Arguments& arguments) {
  HEXLM_ASSIGN(const BenchPlan plan, read_plan(arguments));
  std::optional<Json> earlier;
  if (arguments.has("baseline")) {
    HEXLM_ASSIGN(earlier, read_json(arguments.text("baseline")));
  }
  std::vector<Measured> all;
  std::shared_ptr<const Model> model;
  for (const GridSetting& setting : plan.grid) {
    HEXLM_ASSIGN(Measured measured, measure(with_setting(arguments, setting), setting, plan, model));
    all.push_back(std::move(measured));
  }
  Report report;
  HEXLM_ASSIGN(report.json, bench_json(all, *model));
  std::optional<std::vector<BaselineRow>> changes;
  if (earlier) {
    HEXLM_ASSIGN(changes, compare_with_baseline(report.json["rows"], *earlier, arguments.text("baseline")));
    report.json["baseline"] = to_json(*changes);
  }
  HEXLM_TRY(write_trace(arguments, all));
  HEXLM_TRY(write_report_page(arguments, "bench", fmt::format("Speed of {}", model->folder()), report.json));
  report.rows_key = "rows";
  const Format format = format_of(arguments);
  report.table = format == Format::csv ? csv_table(all) : table_of(all, *model);
  print(report, format);
  if (format == Format::text) {
    print(footer(all, report.json));
    print(profiles_text(report.json["settings"]));
    if (changes) print(baseline_text(*changes));
  }
  print_placement(all[0].placement);
  return 0;
}

}  // namespace hexlm::tool
