#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "formats/json.hpp"
#include "vision/preprocess.hpp"

namespace hexlm {
namespace {

/// Above every published budget (16.8 Mpx), and small enough that the patches' floats stay below 8 GB.
constexpr int64_t pixel_budget_limit = int64_t{1} << 28;
constexpr int bicubic_filter = 3;

/// Reads optional keys of one JSON object. A key that is absent or null leaves its default.
class PreprocessorReader {
 public:
  PreprocessorReader(const Json& object, const std::string& origin) : object_(object), origin_(origin) {}

  Status integer(const char* key, int64_t low, int64_t high, int64_t& value) const {
    const Json* found = find(key);
    if (found == nullptr) return {};
    if (!found->is_number_integer() || found->get<int64_t>() < low || found->get<int64_t>() > high) {
      return wrong(key, fmt::format("an integer in {} … {}", low, high), *found);
    }
    value = found->get<int64_t>();
    return {};
  }

  Status small_integer(const char* key, int high, int& value) const {
    int64_t wide = value;
    HEXLM_TRY(integer(key, 1, high, wide));
    value = static_cast<int>(wide);
    return {};
  }

  Status flag(const char* key, bool& value) const {
    const Json* found = find(key);
    if (found == nullptr) return {};
    if (!found->is_boolean()) return wrong(key, "true or false", *found);
    value = found->get<bool>();
    return {};
  }

  Status positive(const char* key, double& value) const {
    const Json* found = find(key);
    if (found == nullptr) return {};
    if (!found->is_number() || !std::isfinite(found->get<double>()) || found->get<double>() <= 0) {
      return wrong(key, "a positive number", *found);
    }
    value = found->get<double>();
    return {};
  }

  /// Three finite numbers; positive ones where they divide.
  Status channels(const char* key, bool divides, std::array<float, 3>& values) const {
    const Json* found = find(key);
    if (found == nullptr) return {};
    const auto usable = [divides](const Json& number) {
      if (!number.is_number()) return false;
      const auto value = number.get<float>();
      return std::isfinite(value) && (!divides || value > 0);
    };
    if (!found->is_array() || found->size() != 3 || !std::all_of(found->begin(), found->end(), usable)) {
      return wrong(key, divides ? "three positive numbers" : "three numbers", *found);
    }
    for (size_t i = 0; i < 3; ++i) values[i] = (*found)[i].get<float>();
    return {};
  }

  /// nullptr when absent or null.
  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  tl::unexpected<Error> wrong(const char* key, std::string_view expected, const Json& found) const {
    std::string text = found.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 60) + "...";
    return fail(ErrorCode::bad_input,
                fmt::format("{}: {}: expected {}, got {}", origin_, key, expected, text));
  }

 private:
  const Json& object_;
  const std::string& origin_;
};

Status read_pixel_budget(const PreprocessorReader& reader, const std::string& origin,
                         PreprocessorConfig& config) {
  if (const Json* size = reader.find("size"); size != nullptr) {
    if (!size->is_object()) return reader.wrong("size", "an object", *size);
    const PreprocessorReader inner(*size, origin);
    HEXLM_TRY(inner.integer("shortest_edge", 1, pixel_budget_limit, config.min_pixels));
    HEXLM_TRY(inner.integer("longest_edge", 1, pixel_budget_limit, config.max_pixels));
  }
  HEXLM_TRY(reader.integer("min_pixels", 1, pixel_budget_limit, config.min_pixels));
  HEXLM_TRY(reader.integer("max_pixels", 1, pixel_budget_limit, config.max_pixels));
  if (config.min_pixels > config.max_pixels) {
    return fail(ErrorCode::bad_input, fmt::format("{}: expected at most {} minimum pixels, got {}", origin,
                                                  config.max_pixels, config.min_pixels));
  }
  return {};
}

Status read_steps(const PreprocessorReader& reader, const std::string& origin, PreprocessorConfig& config) {
  HEXLM_TRY(reader.flag("do_resize", config.resize));
  bool rescale = true;
  bool normalise = true;
  HEXLM_TRY(reader.flag("do_rescale", rescale));
  HEXLM_TRY(reader.flag("do_normalize", normalise));
  HEXLM_TRY(reader.positive("rescale_factor", config.rescale_factor));
  HEXLM_TRY(reader.channels("image_mean", false, config.mean));
  HEXLM_TRY(reader.channels("image_std", true, config.deviation));
  if (!rescale) config.rescale_factor = 1;
  if (!normalise) {
    config.mean = {0, 0, 0};
    config.deviation = {1, 1, 1};
  }
  int64_t filter = bicubic_filter;
  HEXLM_TRY(reader.integer("resample", 0, 10, filter));
  if (config.resize && filter != bicubic_filter) {
    return fail(ErrorCode::unsupported,
                fmt::format("{}: resample: expected {} (bicubic), got {}", origin, bicubic_filter, filter));
  }
  return {};
}

Result<PreprocessorConfig> read_preprocessor_config(const Json& file, const std::string& origin) {
  if (!file.is_object()) return fail(ErrorCode::bad_input, origin + ": expected a JSON object");
  const PreprocessorReader outer(file, origin);
  const Json* inner = outer.find("image_processor");
  if (inner != nullptr && !inner->is_object()) return outer.wrong("image_processor", "an object", *inner);
  const PreprocessorReader reader(inner != nullptr ? *inner : file, origin);
  PreprocessorConfig config;
  HEXLM_TRY(reader.small_integer("patch_size", 256, config.patch_size));
  HEXLM_TRY(reader.small_integer("temporal_patch_size", 16, config.temporal_patch_size));
  HEXLM_TRY(reader.small_integer("merge_size", 16, config.merge_size));
  HEXLM_TRY(read_pixel_budget(reader, origin, config));
  HEXLM_TRY(read_steps(reader, origin, config));
  return config;
}

}  // namespace

Result<PreprocessorConfig> parse_preprocessor_config(std::string_view text, const std::string& origin) {
  HEXLM_ASSIGN(const Json file, parse_json(text, origin));
  return read_preprocessor_config(file, origin);
}

Result<PreprocessorConfig> load_preprocessor_config(const std::string& path) {
  HEXLM_ASSIGN(const Json file, read_json(path));
  return read_preprocessor_config(file, path);
}

void limit_pixels(PreprocessorConfig& config, int64_t max_pixels) {
  config.max_pixels = std::min(config.max_pixels, std::max<int64_t>(1, max_pixels));
  config.min_pixels = std::min(config.min_pixels, config.max_pixels);
}

}  // namespace hexlm
