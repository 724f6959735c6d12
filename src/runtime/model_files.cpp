#include "runtime/model_files.hpp"

#include <array>
#include <filesystem>
#include <fmt/format.h>

#include "base/atomic_file.hpp"

namespace hexlm {
namespace {

namespace fs = std::filesystem;

/// Qwen3.5's template is 8 kB; the largest published ones are below 100 kB.
constexpr uint64_t template_limit = uint64_t{4} << 20;
/// transformers' GenerationConfig.
constexpr float default_temperature = 1;
constexpr int32_t default_top_k = 50;

tl::unexpected<Error> bad_value(const std::string& origin, const std::string& key, const char* expected,
                                const Json& value) {
  return fail(ErrorCode::bad_input, fmt::format("{}: '{}' must be {}, got {}", origin, key, expected,
                                                value.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

/// nullptr when the key is absent or null.
const Json* find_value(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

Status read_number(const Json& json, const std::string& origin, const char* key, float& value) {
  const Json* found = find_value(json, key);
  if (found == nullptr) return {};
  if (!found->is_number()) return bad_value(origin, key, "a number", *found);
  value = static_cast<float>(found->get<double>());
  return {};
}

Status read_count(const Json& json, const std::string& origin, const char* key, int32_t& value) {
  const Json* found = find_value(json, key);
  if (found == nullptr) return {};
  if (!found->is_number_integer() || *found < 0 || *found > INT32_MAX) {
    return bad_value(origin, key, "a count", *found);
  }
  value = found->get<int32_t>();
  return {};
}

Status read_ids(const Json& json, const std::string& origin, const char* key, std::vector<int32_t>& ids) {
  const Json* found = find_value(json, key);
  if (found == nullptr) return {};
  const Json list = found->is_array() ? *found : Json::array({*found});
  for (const Json& id : list) {
    // Ids are indices of rows that fit in memory, far below 2³¹.
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return bad_value(origin, key, "a token id or a list of them", *found);
    }
    ids.push_back(id.get<int32_t>());
  }
  return {};
}

/// An absent file is no error: nullopt.
Result<std::optional<Json>> read_optional_json(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<Json>();
  HEXLM_ASSIGN(Json json, read_json(path));
  if (!json.is_object()) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: expected a JSON object, got {}", path, json.type_name()));
  }
  return std::optional<Json>(std::move(json));
}

/// A special token is a string, or an AddedToken object with its text in `content`.
Status read_special_tokens(const Json& json, const std::string& origin, Json& tokens) {
  for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const Json* found = find_value(json, key);
    if (found == nullptr) continue;
    const Json* text = found->is_object() ? find_value(*found, "content") : found;
    if (text == nullptr || !text->is_string()) return bad_value(origin, key, "a string", *found);
    tokens[key] = *text;
  }
  return {};
}

Result<std::optional<std::string>> template_of(const Json& json, const std::string& origin) {
  const Json* found = find_value(json, "chat_template");
  if (found == nullptr) return std::optional<std::string>();
  if (found->is_string()) return std::optional<std::string>(found->get<std::string>());
  if (found->is_array()) {
    for (const Json& entry : *found) {
      if (!entry.is_object() || entry.value("name", Json()) != "default") continue;
      const Json* source = find_value(entry, "template");
      if (source != nullptr && source->is_string()) {
        return std::optional<std::string>(source->get<std::string>());
      }
    }
  }
  return bad_value(origin, "chat_template", "a string or a list of {name, template} with a \"default\"",
                   *found);
}

}  // namespace

Result<GenerationDefaults> parse_generation_config(const Json& json, const std::string& origin) {
  GenerationDefaults defaults;
  SamplingOptions& sampling = defaults.sampling;
  sampling.temperature = default_temperature;
  sampling.top_k = default_top_k;
  HEXLM_TRY(read_number(json, origin, "temperature", sampling.temperature));
  HEXLM_TRY(read_count(json, origin, "top_k", sampling.top_k));
  HEXLM_TRY(read_number(json, origin, "top_p", sampling.top_p));
  HEXLM_TRY(read_number(json, origin, "min_p", sampling.min_p));
  HEXLM_TRY(read_number(json, origin, "repetition_penalty", sampling.repetition_penalty));
  HEXLM_TRY(read_number(json, origin, "presence_penalty", sampling.presence_penalty));
  HEXLM_TRY(read_number(json, origin, "frequency_penalty", sampling.frequency_penalty));
  const Json* do_sample = find_value(json, "do_sample");
  if (do_sample != nullptr && !do_sample->is_boolean()) {
    return bad_value(origin, "do_sample", "true or false", *do_sample);
  }
  if (do_sample == nullptr || !do_sample->get<bool>()) sampling.temperature = 0;
  HEXLM_TRY(read_ids(json, origin, "eos_token_id", defaults.eos_tokens));
  if (find_value(json, "max_new_tokens") != nullptr) {
    int32_t limit = 0;
    HEXLM_TRY(read_count(json, origin, "max_new_tokens", limit));
    defaults.max_new_tokens = limit;
  }
  return defaults;
}

Result<GenerationDefaults> read_generation_config(const std::string& folder) {
  const std::string path = (fs::path(folder) / "generation_config.json").string();
  HEXLM_ASSIGN(const std::optional<Json> json, read_optional_json(path));
  return parse_generation_config(json ? *json : Json::object(), path);
}

Result<ChatFiles> read_chat_files(const std::string& folder) {
  ChatFiles files;
  files.special_tokens = Json::object();
  const std::string config_path = (fs::path(folder) / "tokenizer_config.json").string();
  HEXLM_ASSIGN(const std::optional<Json> config, read_optional_json(config_path));
  if (config) HEXLM_TRY(read_special_tokens(*config, config_path, files.special_tokens));

  const std::string jinja_path = (fs::path(folder) / "chat_template.jinja").string();
  std::error_code error;
  if (fs::exists(jinja_path, error)) {
    HEXLM_ASSIGN(files.source, read_file(jinja_path, template_limit));
    files.origin = jinja_path;
    return files;
  }
  const std::string json_path = (fs::path(folder) / "chat_template.json").string();
  HEXLM_ASSIGN(const std::optional<Json> json, read_optional_json(json_path));
  if (json) {
    HEXLM_ASSIGN(files.source, template_of(*json, json_path));
    files.origin = json_path;
  }
  if (!files.source && config) {
    HEXLM_ASSIGN(files.source, template_of(*config, config_path));
    files.origin = config_path;
  }
  return files;
}

Result<GenerationDefaults> generation_config_of(const std::map<std::string, std::string>& files,
                                                const std::string& origin) {
  const auto found = files.find("generation_config.json");
  if (found == files.end()) return parse_generation_config(Json::object(), origin);
  HEXLM_ASSIGN(const Json json, parse_json(found->second, origin));
  return parse_generation_config(json, origin);
}

Result<ChatFiles> chat_files_of(const std::map<std::string, std::string>& files, const std::string& origin) {
  ChatFiles chat;
  chat.special_tokens = Json::object();
  chat.origin = origin;
  const auto config = files.find("tokenizer_config.json");
  if (config != files.end()) {
    HEXLM_ASSIGN(const Json json, parse_json(config->second, origin));
    HEXLM_TRY(read_special_tokens(json, origin, chat.special_tokens));
  }
  const auto source = files.find("chat_template.jinja");
  if (source != files.end()) chat.source = source->second;
  return chat;
}

}  // namespace hexlm
