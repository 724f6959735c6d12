#include "models/rope_config.hpp"

#include <fmt/format.h>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace hexlm {
namespace {

constexpr double largest_theta = 1e15;
constexpr double largest_factor = 1e6;
constexpr int64_t largest_context = int64_t{1} << 31;

class RopeParser {
 public:
  RopeParser(const Json& text, const std::string& prefix, const std::string& origin,
             const ModelFamily& family, std::vector<std::string>& notes)
      : origin_(origin),
        family_(family),
        notes_(notes),
        top_(origin, {{&text, prefix}}),
        rope_(origin, rope_scopes(text, prefix)),
        merged_(origin, merged_scopes(text, prefix)) {}

  Result<RopeConfig> run(int64_t head_dim, int64_t max_positions) {
    RopeConfig config;
    parse_type(config);
    parse_theta(config);
    parse_rotary_part(config, head_dim);
    if (config.type != RopeConfig::Type::standard) config.factor = rope_.number("factor", 1, largest_factor);
    if (config.type == RopeConfig::Type::yarn || config.type == RopeConfig::Type::llama3) {
      // transformers lets yarn take the model's own context here, llama3 must say it.
      config.original_max_position =
          config.type == RopeConfig::Type::llama3
              ? merged_.integer("original_max_position_embeddings", 1, largest_context)
              : merged_.integer_or("original_max_position_embeddings", max_positions, 1, largest_context);
    }
    if (config.type == RopeConfig::Type::yarn) parse_yarn(config);
    if (config.type == RopeConfig::Type::llama3) parse_llama3(config);
    HEXLM_TRY(merged_.status());
    parse_sections(config, head_dim);
    HEXLM_TRY(rope_.status());
    return config;
  }

 private:
  static std::vector<ConfigReader::Scope> rope_scopes(const Json& text, const std::string& prefix) {
    return {{member(text, "rope_parameters"), prefix + "rope_parameters."},
            {member(text, "rope_scaling"), prefix + "rope_scaling."}};
  }
  static std::vector<ConfigReader::Scope> merged_scopes(const Json& text, const std::string& prefix) {
    std::vector<ConfigReader::Scope> scopes = rope_scopes(text, prefix);
    scopes.push_back({&text, prefix});
    return scopes;
  }

  void parse_theta(RopeConfig& config) {
    const double fallback = config.theta;
    config.theta = merged_.number_or("rope_theta", fallback, 2, largest_theta);
    if (!merged_.has("rope_theta")) {
      notes_.push_back(fmt::format("{}: 'rope_theta' is missing: {:.0f} is taken, as transformers does",
                                   origin_, fallback));
    }
    if (!rope_.has("rope_theta") || !top_.has("rope_theta") || !merged_.status()) return;
    const double other = top_.number_or("rope_theta", config.theta, 2, largest_theta);
    if (other == config.theta) return;
    notes_.push_back(
        fmt::format("{}: 'rope_theta' is {} and again {}: the first is taken, as transformers does", origin_,
                    rope_.shown("rope_theta"), top_.shown("rope_theta")));
  }

  void parse_type(RopeConfig& config) {
    for (const char* kind : {"full_attention", "sliding_attention"}) {
      if (rope_.has(kind))
        rope_.reject(ErrorCode::unsupported, kind,
                     "sets rope per layer type, which no supported family does");
    }
    const char* key = rope_.has("rope_type") ? "rope_type" : "type";
    const std::string type = rope_.string_or(key, "default");
    if (type == "default" || (type == "mrope" && family_.mrope != MropeLayout::none)) return;
    if (type == "linear") {
      config.type = RopeConfig::Type::linear;
    } else if (type == "yarn") {
      config.type = RopeConfig::Type::yarn;
    } else if (type == "llama3") {
      config.type = RopeConfig::Type::llama3;
    } else {
      rope_.reject(ErrorCode::unsupported, key,
                   fmt::format("is {}, expected default, linear, yarn or llama3{}", rope_.shown(key),
                               family_.mrope == MropeLayout::none ? "" : " or mrope"));
    }
  }

  void parse_rotary_part(RopeConfig& config, int64_t head_dim) {
    config.partial_rotary_factor =
        merged_.number_or("partial_rotary_factor", family_.partial_rotary_factor, 0, 1);
    if (family_.partial_rotary_factor == 1 && config.partial_rotary_factor != 1) {
      merged_.reject(ErrorCode::unsupported, "partial_rotary_factor",
                     fmt::format("is {}, but {} rotates whole heads", merged_.shown("partial_rotary_factor"),
                                 family_.model_type));
    }
    const auto rotary_dim =
        static_cast<int64_t>(static_cast<double>(head_dim) * config.partial_rotary_factor);
    if (rotary_dim < 2 || rotary_dim % 2 != 0) {
      merged_.reject(ErrorCode::bad_input, "partial_rotary_factor",
                     fmt::format("of {} rotates {} of {} dimensions, expected an even number of at least 2",
                                 config.partial_rotary_factor, rotary_dim, head_dim));
    }
  }

  void parse_yarn(RopeConfig& config) {
    config.attention_factor = rope_.optional_number("attention_factor", 1e-6, largest_factor);
    // transformers takes 0 for these as unset.
    const double beta_fast = rope_.number_or("beta_fast", 0, 0, largest_factor);
    const double beta_slow = rope_.number_or("beta_slow", 0, 0, largest_factor);
    if (beta_fast != 0) config.beta_fast = beta_fast;
    if (beta_slow != 0) config.beta_slow = beta_slow;
    if (config.beta_fast < config.beta_slow) {
      rope_.reject(ErrorCode::bad_input, "beta_fast",
                   fmt::format("is {}, expected at least beta_slow, {}", config.beta_fast, config.beta_slow));
    }
    config.truncate = rope_.boolean_or("truncate", true);
    config.mscale = rope_.optional_number("mscale", 0, largest_factor);
    config.mscale_all_dim = rope_.optional_number("mscale_all_dim", 0, largest_factor);
  }

  void parse_llama3(RopeConfig& config) {
    config.low_freq_factor = rope_.number("low_freq_factor", 1e-6, largest_factor);
    config.high_freq_factor = rope_.number("high_freq_factor", 1e-6, largest_factor);
    if (rope_.status() && config.high_freq_factor <= config.low_freq_factor) {
      rope_.reject(ErrorCode::bad_input, "high_freq_factor",
                   fmt::format("is {}, expected more than low_freq_factor, {}", config.high_freq_factor,
                               config.low_freq_factor));
    }
  }

  void parse_sections(RopeConfig& config, int64_t head_dim) {
    if (family_.mrope == MropeLayout::none) return;
    // `mrope_interleaved` is informational: the layout belongs to the family (spec A.1).
    config.mrope_interleaved = family_.mrope == MropeLayout::interleaved;
    const auto pairs = static_cast<int64_t>(static_cast<double>(head_dim) * config.partial_rotary_factor) / 2;
    if (!rope_.has("mrope_section") && family_.mrope_section[0] > 0) {
      config.mrope_section.assign(family_.mrope_section.begin(), family_.mrope_section.end());
      return;
    }
    config.mrope_section = rope_.integers("mrope_section", 3, 0, pairs);
    const auto& section = config.mrope_section;
    if (section.size() != 3 || std::accumulate(section.begin(), section.end(), int64_t{0}) != pairs) {
      rope_.reject(ErrorCode::bad_input, "mrope_section",
                   fmt::format("is {}, expected three numbers whose sum is {}, half the rotated dimensions",
                               rope_.shown("mrope_section"), pairs));
    }
  }

  const std::string& origin_;
  const ModelFamily& family_;
  std::vector<std::string>& notes_;
  ConfigReader top_;     // the text keys alone
  ConfigReader rope_;    // rope_parameters, rope_scaling
  ConfigReader merged_;  // and then the text keys themselves
};

}  // namespace

Result<RopeConfig> parse_rope(const Json& text, const std::string& prefix, const std::string& origin,
                              const ModelFamily& family, int64_t head_dim, int64_t max_positions,
                              std::vector<std::string>& notes) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* value = member(text, key);
    if (value != nullptr && !value->is_object()) {
      return fail(ErrorCode::bad_input, fmt::format("{}: '{}{}' is {}, expected an object", origin, prefix,
                                                    key, shortened(*value)));
    }
  }
  return RopeParser(text, prefix, origin, family, notes).run(head_dim, max_positions);
}

}  // namespace hexlm
