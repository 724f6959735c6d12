#include "formats/adapter_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

#include "base/text.hpp"

namespace hexlm {
namespace {

constexpr int64_t most_rank = 65536;

/// Keys that inference does not depend on: they say how the adapter was trained, or what is read elsewhere.
constexpr std::array ignored_keys = {
    "auto_mapping",   "corda_config",        "eva_config",        "exclude_modules", "inference_mode",
    "layers_pattern", "layers_to_transform", "loftq_config",      "lora_dropout",    "lora_ga_config",
    "megatron_core",  "peft_version",        "qalora_group_size", "revision",        "runtime_config",
    "target_modules", "task_type",           "lora_bias"};
/// Keys that are read below.
constexpr std::array read_keys = {"alpha_pattern",
                                  "base_model_name_or_path",
                                  "bias",
                                  "fan_in_fan_out",
                                  "init_lora_weights",
                                  "lora_alpha",
                                  "modules_to_save",
                                  "peft_type",
                                  "r",
                                  "rank_pattern",
                                  "use_dora",
                                  "use_rslora"};

template <size_t count>
bool contains_key(const std::array<const char*, count>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// null, false, an empty list or object: the option is off.
bool is_off(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         ((value.is_array() || value.is_object() || value.is_string()) && value.empty());
}

std::string quoted(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60);
}

class AdapterConfigReader {
 public:
  AdapterConfigReader(const Json& json, const std::string& origin) : json_(json), origin_(origin) {}

  Result<AdapterConfig> read() {
    if (!json_.is_object()) return bad(fmt::format("expected an object, got {}", json_.type_name()));
    HEXLM_TRY(check_method());
    HEXLM_TRY(check_keys());
    HEXLM_TRY(check_initialisation());
    HEXLM_TRY(read_numbers());
    HEXLM_TRY(read_switch("use_rslora", config_.root_scaling));
    HEXLM_TRY(read_switch("use_dora", config_.dora));
    HEXLM_TRY(read_switch("fan_in_fan_out", config_.transposed));
    HEXLM_TRY(read_bias());
    HEXLM_TRY(read_saved_modules());
    HEXLM_TRY(read_patterns());
    const Json* base = find("base_model_name_or_path");
    if (base != nullptr && base->is_string()) config_.base_model = base->get<std::string>();
    return std::move(config_);
  }

 private:
  tl::unexpected<Error> bad(const std::string& what) const {
    return fail(ErrorCode::bad_input, fmt::format("{}: {}", origin_, what));
  }
  tl::unexpected<Error> expected(std::string_view key, std::string_view what, const Json& value) const {
    return bad(fmt::format("{}: expected {}, got {}", key, what, quoted(value)));
  }
  /// nullptr when missing or null.
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  Status check_method() {
    const Json* type = find("peft_type");
    if (type == nullptr || !type->is_string()) return bad("peft_type: expected \"LORA\", got nothing");
    if (*type == "LORA") return {};
    return fail(ErrorCode::unsupported,
                fmt::format("{}: peft_type: expected \"LORA\", got {}", origin_, quoted(*type)),
                "merge it with PEFT and export the merged checkpoint");
  }

  Status check_keys() {
    for (const auto& [key, value] : json_.items()) {
      if (is_off(value) || contains_key(ignored_keys, key) || contains_key(read_keys, key)) continue;
      return fail(ErrorCode::unsupported,
                  fmt::format("{}: {} is {}, an option that is not implemented", origin_,
                              std::string_view(key).substr(0, 60), quoted(value)),
                  "it may change the result; merge the adapter with PEFT and export the merged checkpoint");
    }
    return {};
  }

  /// Everything but random or zero matrices moves part of the base weights into the adapter, so that the base
  /// the adapter belongs to is not the published one (spec E.1).
  Status check_initialisation() {
    const Json* value = find("init_lora_weights");
    if (value == nullptr || value->is_boolean()) return {};
    if (!value->is_string()) return expected("init_lora_weights", "true, false or a name", *value);
    const auto& name = value->get_ref<const std::string&>();
    if (name == "gaussian" || name == "orthogonal") return {};
    return fail(ErrorCode::unsupported,
                fmt::format("{}: init_lora_weights is {}: training changed the base model's own weights, so "
                            "the adapter does not fit the stock checkpoint",
                            origin_, quoted(*value)),
                "convert it with PEFT (path_initial_model_for_weight_conversion), or merge it with PEFT into "
                "the base that was saved with it");
  }

  Status read_numbers() {
    if (const Json* rank = find("r")) {
      if (!rank->is_number_integer() || *rank < 1 || *rank > most_rank) {
        return expected("r", fmt::format("a rank of 1 to {}", most_rank), *rank);
      }
      config_.rank = rank->get<int64_t>();
    }
    if (const Json* alpha = find("lora_alpha")) {
      if (!is_alpha(*alpha)) return expected("lora_alpha", "a finite number", *alpha);
      config_.alpha = alpha->get<double>();
    }
    return {};
  }

  static bool is_alpha(const Json& value) { return value.is_number() && std::isfinite(value.get<double>()); }

  Status read_switch(const char* key, bool& out) {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_boolean()) return expected(key, "true or false", *value);
    out = value->get<bool>();
    return {};
  }

  Status read_bias() {
    const Json* value = find("bias");
    if (value == nullptr) return {};
    if (*value != "none" && *value != "all" && *value != "lora_only") {
      return expected("bias", "none, all or lora_only", *value);
    }
    config_.trained_bias = *value != "none";
    return {};
  }

  Status read_saved_modules() {
    const Json* value = find("modules_to_save");
    if (value == nullptr) return {};
    if (!value->is_array()) return expected("modules_to_save", "a list of names", *value);
    for (const Json& name : *value) {
      if (!name.is_string()) return expected("modules_to_save", "a list of names", *value);
      config_.saved_modules.push_back(name.get<std::string>());
    }
    return {};
  }

  Status read_patterns() {
    HEXLM_TRY(each_pattern("rank_pattern", [&](NamePattern pattern, const Json& value) -> Status {
      if (!value.is_number_integer() || value < 1 || value > most_rank) {
        return expected("rank_pattern", fmt::format("ranks of 1 to {}", most_rank), value);
      }
      config_.rank_patterns.emplace_back(std::move(pattern), value.get<int64_t>());
      return {};
    }));
    return each_pattern("alpha_pattern", [&](NamePattern pattern, const Json& value) -> Status {
      if (!is_alpha(value)) return expected("alpha_pattern", "finite numbers", value);
      config_.alpha_patterns.emplace_back(std::move(pattern), value.get<double>());
      return {};
    });
  }

  template <class Add>
  Status each_pattern(const char* key, const Add& add) {
    const Json* patterns = find(key);
    if (patterns == nullptr) return {};
    if (!patterns->is_object()) return expected(key, "an object of patterns", *patterns);
    for (const auto& [expression, value] : patterns->items()) {
      HEXLM_ASSIGN(NamePattern pattern, NamePattern::whole("(?:.*\\.)?(?:" + expression + ")",
                                                           fmt::format("{}: {}", origin_, key)));
      HEXLM_TRY(add(std::move(pattern), value));
    }
    return {};
  }

  const Json& json_;
  const std::string& origin_;
  AdapterConfig config_;
};

template <class Value>
Result<Value> first_match(const std::vector<std::pair<NamePattern, Value>>& patterns, std::string_view path,
                          Value fallback) {
  for (const auto& [pattern, value] : patterns) {
    HEXLM_ASSIGN(const bool matches, pattern.matches(path));
    if (matches) return value;
  }
  return fallback;
}

}  // namespace

Result<int64_t> AdapterConfig::rank_of(std::string_view path) const {
  return first_match(rank_patterns, path, rank);
}

Result<double> AdapterConfig::alpha_of(std::string_view path) const {
  return first_match(alpha_patterns, path, alpha);
}

bool AdapterConfig::is_saved(std::string_view path) const {
  return std::any_of(saved_modules.begin(), saved_modules.end(), [path](const std::string& name) {
    if (!path.ends_with(name)) return false;
    return path.size() == name.size() || path[path.size() - name.size() - 1] == '.';
  });
}

Result<AdapterConfig> parse_adapter_config(const Json& json, const std::string& origin) {
  return AdapterConfigReader(json, origin).read();
}

}  // namespace hexlm
