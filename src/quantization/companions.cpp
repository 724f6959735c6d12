#include "quantization/companions.hpp"

#include <array>
#include <filesystem>
#include <fmt/format.h>

#include "base/atomic_file.hpp"
#include "base/hash.hpp"
#include "formats/json.hpp"

namespace hexlm {
namespace {

constexpr std::array copied_files = {"tokenizer.json",          "tokenizer_config.json",
                                     "special_tokens_map.json", "chat_template.jinja",
                                     "generation_config.json",  "preprocessor_config.json",
                                     "processor_config.json",   "video_preprocessor_config.json"};
constexpr const char* template_file = "chat_template.jinja";
/// The largest tokenizer.json published so far has 33 MB.
constexpr uint64_t companion_limit = uint64_t{256} << 20;

CompanionFile companion(const std::string& name, const std::string& content) {
  return {name, content.size(), hash64(std::as_bytes(std::span(content)))};
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// The template in a JSON file's `chat_template`: a string, or a list of {name, template} of which `default`
/// counts.
std::string template_in(const Json& json) {
  const auto found = json.is_object() ? json.find("chat_template") : json.end();
  if (found == json.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return {};
  for (const Json& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template")) continue;
    if (entry["name"] == "default" && entry["template"].is_string())
      return entry["template"].get<std::string>();
  }
  return {};
}

Status store(const std::string& package, const std::string& name, const std::string& content,
             Companions& companions) {
  HEXLM_TRY(write_file_atomically(package + "/" + name, content));
  companions.files.push_back(package_file(name, content));
  return {};
}

Status extract_chat_template(const std::string& checkpoint, const std::string& package,
                             Companions& companions) {
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    const std::string path = checkpoint + "/" + name;
    if (!is_there(path)) continue;
    HEXLM_ASSIGN(const std::string content, read_file(path, companion_limit));
    HEXLM_ASSIGN(const Json json, parse_json(content, path));
    const std::string text = template_in(json);
    if (text.empty()) continue;
    if (std::string_view(name) == "chat_template.json")
      companions.sources.push_back(companion(name, content));
    return store(package, template_file, text, companions);
  }
  return {};
}

/// A number of generation_config.json, or the value it has when absent.
Json number_or(const Json& generation, const char* key, const Json& fallback) {
  const auto found = generation.find(key);
  return found != generation.end() && found->is_number() ? *found : fallback;
}

}  // namespace

Result<Companions> copy_companions(const std::string& checkpoint, const std::string& package) {
  Companions companions;
  for (const char* name : copied_files) {
    const std::string path = checkpoint + "/" + name;
    if (!is_there(path)) continue;
    HEXLM_ASSIGN(const std::string content, read_file(path, companion_limit));
    HEXLM_TRY(store(package, name, content, companions));
    companions.sources.push_back(companion(name, content));
  }
  if (!is_there(package + "/" + template_file))
    HEXLM_TRY(extract_chat_template(checkpoint, package, companions));
  return companions;
}

Result<Companions> write_companions(const std::map<std::string, std::string>& files,
                                    const std::string& package) {
  Companions companions;
  for (const auto& [name, content] : files) {
    HEXLM_TRY(store(package, name, content, companions));
    companions.sources.push_back(companion(name, content));
  }
  return companions;
}

Status write_runtime_defaults(const std::string& checkpoint, const std::string& package) {
  Json generation = Json::object();
  const std::string path = checkpoint + "/generation_config.json";
  if (is_there(path)) {
    HEXLM_ASSIGN(generation, read_json(path));
    if (!generation.is_object()) {
      return fail(ErrorCode::bad_input,
                  fmt::format("{}: expected an object, got {}", path, generation.type_name()));
    }
  }
  // transformers samples only when do_sample says so, and then with these values for absent keys (spec F.3).
  const auto do_sample = generation.find("do_sample");
  const bool samples = do_sample != generation.end() && do_sample->is_boolean() && do_sample->get<bool>();
  Json settings = Json::object();
  settings["backend_type"] = "cpu";
  settings["thread_num"] = 0;
  settings["precision"] = "normal";
  settings["memory"] = "low";
  settings["max_new_tokens"] = number_or(generation, "max_new_tokens", 512);
  settings["temperature"] = samples ? number_or(generation, "temperature", 1.0) : Json(0.0);
  settings["top_k"] = number_or(generation, "top_k", 50);
  settings["top_p"] = number_or(generation, "top_p", 1.0);
  settings["min_p"] = number_or(generation, "min_p", 0.0);
  settings["repetition_penalty"] = number_or(generation, "repetition_penalty", 1.0);
  settings["presence_penalty"] = number_or(generation, "presence_penalty", 0.0);
  return write_file_atomically(package + "/config.json",
                               settings.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace hexlm
