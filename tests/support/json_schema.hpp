#pragma once

#include <algorithm>
#include <string>

#include "formats/json.hpp"

namespace hexlm {

/// Whether a value is of a JSON Schema type.
inline bool has_schema_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  return type == "null" && value.is_null();
}

/// The first place where `value` breaks `schema`, "" when it keeps to it. Knows type, enum, required,
/// properties, additionalProperties: false and items, which is what the project's schemas use.
inline std::string schema_violation(const Json& value, const Json& schema, const std::string& path = "$") {
  if (const auto type = schema.find("type"); type != schema.end()) {
    const Json types = type->is_array() ? *type : Json::array({*type});
    if (std::none_of(types.begin(), types.end(),
                     [&](const Json& each) { return has_schema_type(value, each.get<std::string>()); }))
      return path + " is " + value.type_name() + ", expected " + type->dump();
  }
  if (const auto choices = schema.find("enum"); choices != schema.end()) {
    if (std::find(choices->begin(), choices->end(), value) == choices->end())
      return path + " is " + value.dump() + ", expected one of " + choices->dump();
  }
  if (value.is_object()) {
    for (const Json& key : schema.value("required", Json::array())) {
      if (!value.contains(key.get<std::string>())) return path + " lacks " + key.dump();
    }
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [key, member] : value.items()) {
      const auto found = properties.find(key);
      if (found != properties.end()) {
        const std::string violation = schema_violation(member, *found, path + "." + key);
        if (!violation.empty()) return violation;
      } else if (schema.value("additionalProperties", true) == false) {
        return path + " has the unknown key " + key;
      }
    }
  }
  if (value.is_array() && schema.contains("items")) {
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string violation =
          schema_violation(value[i], schema["items"], path + "[" + std::to_string(i) + "]");
      if (!violation.empty()) return violation;
    }
  }
  return "";
}

}  // namespace hexlm
