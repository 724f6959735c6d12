#include "hexlm/configuration.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "hexlm/calibration.hpp"
#include "hexlm/common.hpp"
#include "quantization/export.hpp"
#include "runtime/calibration_runner.hpp"

namespace hexlm::tool {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 9> export_keys = {
    "quant",           "lm-head",     "embedding",           "vision",
    "method",          "calibration", "calibration-samples", "calibration-tokens",
    "calibration-seed"};
/// Those that say what a codec may be: without any of them there is nothing to export.
constexpr std::array<std::string_view, 4> codec_keys = {"quant", "lm-head", "embedding", "vision"};
/// Flags of `eval` that say what is measured rather than how the model runs.
constexpr std::array<std::string_view, 9> fixed_keys = {
    "task", "score", "limit", "against", "min-exact", "max-degenerate", "report", "format", "config"};
/// Repeatable flags, whose values a configuration joins with ':', as in PATH.
constexpr std::array<std::string_view, 2> list_keys = {"adapter", "adapter-scale"};

template <size_t N>
bool is_in(const std::array<std::string_view, N>& list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

std::vector<std::string> known_keys() {
  std::vector<std::string> keys = {"model"};
  keys.insert(keys.end(), export_keys.begin(), export_keys.end());
  for (const Flag& flag : find_verb("eval")->flags) {
    if (!is_in(fixed_keys, flag.name) && flag.name != "quiet") keys.emplace_back(flag.name);
  }
  return keys;
}

Status add_value(Configuration& configuration, std::string key, const std::string& value) {
  std::replace(key.begin(), key.end(), '_', '-');
  if (key == "cache-type") key = "kv-cache";
  const std::vector<std::string> known = known_keys();
  if (std::find(known.begin(), known.end(), key) == known.end())
    return fail(ErrorCode::usage, fmt::format("unknown key \"{}\" in a configuration", key),
                fmt::format("did you mean \"{}\"?", nearest(key, known)));
  if (!value.empty()) configuration[key] = value;
  return {};
}

/// A list, of calibration files or adapters, is written as in PATH.
Result<std::string> text_of(const Json& value, const std::string& key, const std::string& origin) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  std::string joined;
  for (const Json& part : value.is_array() ? value : Json::array()) {
    if (!part.is_string()) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: {} holds {}, expected strings", origin, key, part.type_name()));
    }
    joined += (joined.empty() ? "" : ":") + part.get<std::string>();
  }
  if (!joined.empty()) return joined;
  return fail(ErrorCode::bad_input, fmt::format("{}: {} can't be {}", origin, key, value.type_name()));
}

Status add_json(Configuration& configuration, const Json& json, const std::string& origin) {
  if (!json.is_object())
    return fail(ErrorCode::bad_input,
                fmt::format("{}: expected a JSON object, got {}", origin, json.type_name()));
  for (const auto& [key, value] : json.items()) {
    HEXLM_ASSIGN(const std::string text, text_of(value, key, origin));
    HEXLM_TRY(add_value(configuration, key, text));
  }
  return {};
}

Result<std::optional<Codec>> codec_in(const Configuration& configuration, const std::string& key) {
  const auto found = configuration.find(key);
  if (found == configuration.end()) return std::optional<Codec>();
  HEXLM_ASSIGN(const Codec codec, parse_codec(found->second));
  return std::optional<Codec>(codec);
}

std::string setting(const Configuration& configuration, const char* key) {
  const auto found = configuration.find(key);
  return found == configuration.end() ? std::string() : found->second;
}

/// The samples that a calibrated method of a configuration looks at.
Result<CalibrationSet> calibration_of(const Configuration& configuration, Method method, int threads) {
  CalibrationOptions options;
  const std::string files = setting(configuration, "calibration");
  for (const std::string_view file : split(files, ':')) {
    if (!file.empty()) options.files.emplace_back(file);
  }
  if (options.files.empty()) {
    return fail(ErrorCode::usage, fmt::format("the method {} needs calibration text", to_string(method)),
                "add calibration=FILE to the configuration; several files are joined with ':'");
  }
  for (const auto& [key, target] : {std::pair("calibration-samples", &options.samples),
                                    std::pair("calibration-tokens", &options.tokens)}) {
    const std::string text = setting(configuration, key);
    if (!text.empty() && (!parse_integer(text, *target) || *target < 2))
      return fail(ErrorCode::usage, fmt::format("{}: '{}' is no number above 1", key, text));
  }
  int64_t seed = 0;
  if (const std::string text = setting(configuration, "calibration-seed"); !text.empty()) {
    if (!parse_integer(text, seed) || seed < 0)
      return fail(ErrorCode::usage, fmt::format("calibration-seed: '{}' is no number from 0", text));
  }
  options.seed = static_cast<uint64_t>(seed);
  return load_samples(std::move(options), configuration.at("model"), threads);
}

Status export_configuration(const Configuration& configuration, const std::string& package, int threads) {
  ExportOptions options;
  options.checkpoint = configuration.at("model");
  options.package = package;
  options.threads = threads;
  options.tool_version = tool_version;
  HEXLM_ASSIGN(options.linear, codec_in(configuration, "quant"));
  HEXLM_ASSIGN(options.lm_head, codec_in(configuration, "lm-head"));
  HEXLM_ASSIGN(options.embedding, codec_in(configuration, "embedding"));
  HEXLM_ASSIGN(options.vision, codec_in(configuration, "vision"));
  if (const std::string method = setting(configuration, "method"); !method.empty()) {
    HEXLM_ASSIGN(options.method, parse_method(method));
  }
  std::unique_ptr<GraphRunner> runner;
  if (needs_calibration(options.method)) {
    HEXLM_ASSIGN(options.calibration, calibration_of(configuration, options.method, threads));
    runner = make_calibration_runner(threads);
    options.runner = runner.get();
  }
  if (!options.linear) options.linear = Codec{};
  if (!options.vision) options.vision = Codec{};
  HEXLM_ASSIGN(ExportPlan plan, plan_export(options));
  const bool none = !options.lm_head && !options.embedding;
  if (!options.embedding && (none || !plan.config.text.tied_embeddings)) options.embedding = Codec{};
  if (!options.lm_head && (none || !plan.config.text.tied_embeddings)) options.lm_head = Codec{};
  HEXLM_ASSIGN(plan, plan_export(options));
  HEXLM_ASSIGN(const ExportResult result, export_package(options, plan, nullptr));
  return result.bytes > 0 ? Status() : Status(fail(ErrorCode::runtime, "the export wrote nothing"));
}

}  // namespace

Result<Configuration> read_configuration(const std::string& text) {
  Configuration configuration;
  if (text.find('=') == std::string::npos) {
    HEXLM_ASSIGN(const Json json, read_json(text));
    HEXLM_TRY(add_json(configuration, json, text));
  } else {
    for (const std::string_view part : split(text, ',')) {
      const size_t equals = part.find('=');
      if (equals == std::string_view::npos || equals == 0)
        return fail(ErrorCode::usage, fmt::format("\"{}\" in a configuration is no key=value", part),
                    "give a JSON file, or a list such as model=DIR,quant=w4g64");
      HEXLM_TRY(add_value(configuration, std::string(part.substr(0, equals)),
                          std::string(part.substr(equals + 1))));
    }
  }
  if (!configuration.contains("model"))
    return fail(ErrorCode::usage, fmt::format("the configuration \"{}\" names no model", text),
                "add model=FOLDER");
  return configuration;
}

Result<PackageCache> PackageCache::create() {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  std::string pattern = (error ? fs::path("/tmp") : base) / "hexlm-bisect-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr)
    return fail(ErrorCode::runtime, fmt::format("can't create a temporary folder {}", pattern));
  return PackageCache(std::move(pattern));
}

PackageCache::PackageCache(PackageCache&& other) noexcept
    : root_(std::exchange(other.root_, {})), packages_(std::move(other.packages_)) {}

PackageCache::~PackageCache() {
  std::error_code ignored;
  if (!root_.empty()) fs::remove_all(root_, ignored);
}

Result<std::string> PackageCache::folder_for(const Configuration& configuration, int threads) {
  const std::string& model = configuration.at("model");
  std::string key = model;
  bool exports = false;
  for (const std::string_view name : export_keys) {
    const auto found = configuration.find(std::string(name));
    key += "\n" + (found == configuration.end() ? std::string() : found->second);
    exports = exports || (found != configuration.end() && is_in(codec_keys, name));
  }
  if (!exports) return model;
  const auto known = packages_.find(key);
  if (known != packages_.end()) return known->second;
  std::string package = fmt::format("{}/{}", root_, packages_.size());
  HEXLM_TRY(export_configuration(configuration, package, threads));
  packages_.emplace(std::move(key), package);
  return package;
}

Result<Arguments> arguments_of(const Configuration& configuration, const std::string& folder,
                               const FlagValues& defaults) {
  FlagValues flags = defaults;
  for (const auto& [key, value] : configuration) {
    if (key == "model" || is_in(export_keys, key)) continue;
    std::vector<std::string>& values = flags[key];
    values = {value};
    if (!is_in(list_keys, key)) continue;
    const auto parts = split(value, ':');
    values.assign(parts.begin(), parts.end());
  }
  return Arguments::create(*find_verb("eval"), std::move(flags), {folder});
}

}  // namespace hexlm::tool
