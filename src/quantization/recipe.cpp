#include "quantization/recipe.hpp"

#include <fmt/format.h>

#include "formats/json.hpp"

namespace hexlm {
namespace {

tl::unexpected<Error> bad_rule(const std::string& path, size_t number, std::string_view what) {
  return fail(ErrorCode::bad_input, fmt::format("{}: rule {}: {}", path, number, what),
              R"(a rule is {"tensors": "layers.*.mlp.down_proj.weight", "codec": "w8g64"})");
}

Status read_rule(const Json& rule, const std::string& path, size_t number, Recipe& recipe) {
  if (!rule.is_object())
    return bad_rule(path, number, fmt::format("expected an object, got {}", rule.type_name()));
  for (const auto& member : rule.items()) {
    if (member.key() != "tensors" && member.key() != "codec") {
      return bad_rule(path, number, fmt::format("'{}' is neither \"tensors\" nor \"codec\"", member.key()));
    }
  }
  if (!rule.contains("codec") || !rule["codec"].is_string())
    return bad_rule(path, number, "has no \"codec\"");
  auto codec = parse_codec(rule["codec"].get<std::string>());
  if (!codec) return bad_rule(path, number, codec.error().message);
  const Json selectors = rule.contains("tensors") && rule["tensors"].is_string()
                             ? Json::array({rule["tensors"]})
                         : rule.contains("tensors") ? rule["tensors"]
                                                    : Json();
  if (!selectors.is_array() || selectors.empty()) return bad_rule(path, number, "has no \"tensors\"");
  for (const Json& selector : selectors) {
    if (!selector.is_string()) return bad_rule(path, number, "a selector is no string");
    recipe.rules.push_back({selector.get<std::string>(), *codec});
  }
  return {};
}

}  // namespace

bool matches(std::string_view selector, std::string_view name) {
  const size_t star = selector.find('*');
  if (star == std::string_view::npos) return selector == name;
  if (!name.starts_with(selector.substr(0, star))) return false;
  name.remove_prefix(star);
  selector.remove_prefix(star + 1);
  // The pieces between stars are found one after the other, each as early as possible; the last one must end
  // the name.
  for (size_t next = selector.find('*'); next != std::string_view::npos; next = selector.find('*')) {
    const size_t found = name.find(selector.substr(0, next));
    if (found == std::string_view::npos) return false;
    name.remove_prefix(found + next);
    selector.remove_prefix(next + 1);
  }
  return name.ends_with(selector);
}

Result<Recipe> read_recipe(const std::string& path) {
  HEXLM_ASSIGN(const Json json, read_json(path));
  if (!json.is_object() || !json.contains("rules") || !json["rules"].is_array() || json.size() != 1) {
    return fail(ErrorCode::bad_input,
                fmt::format("{}: expected an object with the one key \"rules\", an array", path));
  }
  Recipe recipe;
  for (size_t i = 0; i < json["rules"].size(); ++i)
    HEXLM_TRY(read_rule(json["rules"][i], path, i + 1, recipe));
  return recipe;
}

}  // namespace hexlm
