#include "models/config_reader.hpp"

#include <cmath>
#include <fmt/format.h>
#include <utility>

namespace hexlm {

std::string shortened(const Json& value) {
  constexpr size_t limit = 60;
  // Scalars and short lists only: dumping a whole file to keep 60 bytes of it would be a waste.
  if (value.is_object()) return "an object";
  if (value.is_array() && value.size() > 8) return fmt::format("a list of {}", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  return text;
}

ConfigReader::Found ConfigReader::find(std::string_view key) const {
  for (const Scope& scope : scopes_) {
    if (scope.object == nullptr || !scope.object->is_object()) continue;
    const auto found = scope.object->find(std::string(key));
    if (found != scope.object->end() && !found->is_null()) return {&*found, scope.prefix + std::string(key)};
  }
  return {nullptr, (scopes_.empty() ? std::string() : scopes_.front().prefix) + std::string(key)};
}

void ConfigReader::expected(const Found& found, std::string_view what) {
  if (!status_) return;
  status_ = fail(
      ErrorCode::bad_input,
      found.value == nullptr
          ? fmt::format("{}: '{}' is missing, expected {}", origin_, found.name, what)
          : fmt::format("{}: '{}' is {}, expected {}", origin_, found.name, shortened(*found.value), what));
}

void ConfigReader::reject(ErrorCode code, std::string_view key, std::string_view complaint,
                          std::string hint) {
  if (!status_) return;
  status_ = fail(code, fmt::format("{}: '{}' {}", origin_, find(key).name, complaint), std::move(hint));
}

std::string ConfigReader::shown(std::string_view key) const {
  const Found found = find(key);
  return found.value == nullptr ? "nothing" : shortened(*found.value);
}

std::optional<int64_t> ConfigReader::checked_integer(const Json& value, int64_t least, int64_t most) const {
  if (!value.is_number_integer()) return std::nullopt;
  // Above INT64_MAX the library keeps numbers unsigned, and reading them as signed would wrap.
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return std::nullopt;
  const auto number = value.get<int64_t>();
  if (number < least || number > most) return std::nullopt;
  return number;
}

std::optional<int64_t> ConfigReader::optional_integer(std::string_view key, int64_t least, int64_t most) {
  const Found found = find(key);
  if (found.value == nullptr) return std::nullopt;
  auto number = checked_integer(*found.value, least, most);
  if (!number) expected(found, fmt::format("an integer of {} to {}", least, most));
  return number;
}

int64_t ConfigReader::integer(std::string_view key, int64_t least, int64_t most) {
  const auto number = optional_integer(key, least, most);
  if (!number && !has(key)) expected(find(key), fmt::format("an integer of {} to {}", least, most));
  return number.value_or(least);
}

int64_t ConfigReader::integer_or(std::string_view key, int64_t fallback, int64_t least, int64_t most) {
  return optional_integer(key, least, most).value_or(fallback);
}

std::optional<double> ConfigReader::optional_number(std::string_view key, double least, double most) {
  const Found found = find(key);
  if (found.value == nullptr) return std::nullopt;
  if (found.value->is_number()) {
    const auto number = found.value->get<double>();
    if (std::isfinite(number) && number >= least && number <= most) return number;
  }
  expected(found, fmt::format("a number of {} to {}", least, most));
  return std::nullopt;
}

double ConfigReader::number(std::string_view key, double least, double most) {
  const auto number = optional_number(key, least, most);
  if (!number && !has(key)) expected(find(key), fmt::format("a number of {} to {}", least, most));
  return number.value_or(least);
}

double ConfigReader::number_or(std::string_view key, double fallback, double least, double most) {
  return optional_number(key, least, most).value_or(fallback);
}

bool ConfigReader::boolean_or(std::string_view key, bool fallback) {
  const Found found = find(key);
  if (found.value == nullptr) return fallback;
  if (found.value->is_boolean()) return found.value->get<bool>();
  expected(found, "true or false");
  return fallback;
}

std::string ConfigReader::string_or(std::string_view key, std::string fallback) {
  const Found found = find(key);
  if (found.value == nullptr) return fallback;
  if (found.value->is_string()) return found.value->get<std::string>();
  expected(found, "a string");
  return fallback;
}

std::vector<int64_t> ConfigReader::integers(std::string_view key, size_t limit, int64_t least, int64_t most) {
  const Found found = find(key);
  if (found.value == nullptr) return {};
  const std::string what =
      fmt::format("an integer of {} to {}, or a list of at most {} of them", least, most, limit);
  std::vector<int64_t> numbers;
  if (!found.value->is_array()) {
    const auto number = checked_integer(*found.value, least, most);
    if (!number) expected(found, what);
    return {number.value_or(least)};
  }
  if (found.value->size() > limit) {
    expected(found, what);
    return {};
  }
  for (const Json& item : *found.value) {
    const auto number = checked_integer(item, least, most);
    if (!number) {
      expected(found, what);
      return {};
    }
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<std::string> ConfigReader::strings(std::string_view key, size_t limit) {
  const Found found = find(key);
  if (found.value == nullptr) return {};
  std::vector<std::string> texts;
  bool ok = found.value->is_array() && found.value->size() <= limit;
  for (size_t i = 0; ok && i < found.value->size(); ++i) {
    const Json& item = (*found.value)[i];
    ok = item.is_string();
    if (ok) texts.push_back(item.get<std::string>());
  }
  if (ok) return texts;
  expected(found, fmt::format("a list of at most {} strings", limit));
  return {};
}

const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace hexlm
