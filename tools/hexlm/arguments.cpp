#include "hexlm/arguments.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <unistd.h>

#include "base/cpu_features.hpp"
#include "base/log.hpp"
#include "base/processors.hpp"
#include "base/text.hpp"

namespace hexlm::tool {
namespace {

constexpr std::string_view variable_prefix = "HEXLM_";

/// Keys that other runtimes' configuration files use for the same settings.
std::string_view canonical_key(std::string_view key) {
  if (key == "backend_type") return "backend";
  if (key == "thread_num") return "threads";
  if (key == "cache_type") return "kv_cache";
  return key;
}

std::string flag_name_of(std::string_view key) {
  std::string name(key);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string bounds_text(const Flag& flag) {
  if (std::isinf(flag.least)) return "";
  if (std::isinf(flag.greatest)) return fmt::format(" of at least {:.15g}", flag.least);
  if (flag.kind == FlagKind::number)
    return fmt::format(" from {:.15g} to {:.15g}", flag.least, flag.greatest);
  const std::string bounds = fmt::format(" from {:.0f} to {:.0f}", flag.least, flag.greatest);
  return flag.word.empty() ? bounds : fmt::format("{} or {}", bounds, flag.word);
}

bool within(const Flag& flag, double value) { return value >= flag.least && value <= flag.greatest; }

bool is_integer(const Flag& flag, std::string_view text) {
  int64_t value = 0;
  if (!flag.word.empty() && text == flag.word) return true;
  return parse_integer(text, value) && within(flag, static_cast<double>(value));
}

std::vector<std::string> choices_of(const Flag& flag) {
  std::vector<std::string> choices;
  for (const std::string_view choice : split(flag.value, '|')) choices.emplace_back(choice);
  return choices;
}

/// What a flag expects when `text` is not it; nothing when it is.
std::optional<std::string> expectation(const Flag& flag, const std::string& text) {
  switch (flag.kind) {
    case FlagKind::toggle:
      if (text == "true" || text == "false") return std::nullopt;
      return "true or false";
    case FlagKind::text:
    case FlagKind::path:
      return std::nullopt;
    case FlagKind::integer:
      if (is_integer(flag, text)) return std::nullopt;
      return fmt::format("an integer{}", bounds_text(flag));
    case FlagKind::number: {
      const auto value = parse_number(text);
      if (value && within(flag, *value)) return std::nullopt;
      return fmt::format("a number{}", bounds_text(flag));
    }
    case FlagKind::integers:
      for (const std::string_view part : split(text, ',')) {
        if (!is_integer(flag, part)) return fmt::format("integers{}, separated by commas", bounds_text(flag));
      }
      return std::nullopt;
    case FlagKind::choice: {
      const std::vector<std::string> choices = choices_of(flag);
      if (std::find(choices.begin(), choices.end(), text) != choices.end()) return std::nullopt;
      return fmt::format("one of {}", fmt::join(choices, ", "));
    }
  }
  return std::nullopt;
}

Status check_value(const Flag& flag, const std::string& text, const std::string& where, ErrorCode kind) {
  const std::optional<std::string> expected = expectation(flag, text);
  if (!expected) return {};
  std::string hint;
  if (flag.kind == FlagKind::choice) hint = fmt::format("did you mean {}?", nearest(text, choices_of(flag)));
  return fail(kind, fmt::format("{} must be {}, got \"{}\"", where, *expected, text), hint);
}

/// A toggle in an environment variable may be spelled in the usual ways.
std::string toggle_text(std::string text) {
  if (text == "1" || text == "yes" || text == "on") return "true";
  if (text == "0" || text == "no" || text == "off") return "false";
  return text;
}

/// Variables that no flag has: kernels read HEXLM_ISA themselves.
bool is_known_variable(std::string_view name) {
  if (name == "HEXLM_ISA") return true;
  for (const Verb& verb : verbs()) {
    for (const Flag& flag : verb.flags) {
      if (flag.environment == name) return true;
    }
  }
  return false;
}

/// A mistyped variable would be ignored in silence otherwise.
Status refuse_unknown_variables() {
  std::vector<std::string> known = {"HEXLM_ISA"};
  for (const Verb& verb : verbs()) {
    for (const Flag& flag : verb.flags) {
      if (!flag.environment.empty()) known.emplace_back(flag.environment);
    }
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    if (!variable.starts_with(variable_prefix)) continue;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (is_known_variable(name)) continue;
    return fail(ErrorCode::usage, fmt::format("the variable {} is no setting", name),
                fmt::format("did you mean {}? Else unset it", nearest(name, known)));
  }
  return {};
}

/// One JSON value as flag texts; nothing when its type can't be a setting.
std::optional<std::vector<std::string>> texts_of(const Json& value, FlagKind kind) {
  const bool takes_text = kind == FlagKind::text || kind == FlagKind::path || kind == FlagKind::choice;
  if (value.is_string()) return std::vector<std::string>{value.get<std::string>()};
  if (value.is_number() || value.is_boolean()) {
    if (takes_text) return std::nullopt;
    return std::vector<std::string>{value.dump()};
  }
  if (value.is_object() && kind == FlagKind::text) return std::vector<std::string>{value.dump()};
  if (!value.is_array()) return std::nullopt;
  std::vector<std::string> texts;
  for (const Json& item : value) {
    if (!item.is_string() && (takes_text || !item.is_number())) return std::nullopt;
    texts.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  }
  if (kind == FlagKind::integers) return std::vector<std::string>{fmt::format("{}", fmt::join(texts, ","))};
  return texts;
}

/// What JSON holds for such a flag.
std::string_view json_kind(FlagKind kind) {
  switch (kind) {
    case FlagKind::toggle:
      return "true or false";
    case FlagKind::text:
    case FlagKind::path:
    case FlagKind::choice:
      return "a string";
    case FlagKind::integer:
      return "an integer";
    case FlagKind::number:
      return "a number";
    case FlagKind::integers:
      return "a list of integers";
  }
  return "a string";
}

}  // namespace

Result<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return fail(ErrorCode::usage, fmt::format("\"{}\" is not a number", text));
  }
  return value;
}

Result<Arguments> Arguments::create(const Verb& verb, FlagValues flags,
                                    std::vector<std::string> positionals) {
  Arguments arguments(verb);
  arguments.positionals_ = std::move(positionals);
  HEXLM_TRY(arguments.add_layer({"", std::move(flags)}, ErrorCode::usage));
  HEXLM_TRY(arguments.add_environment());
  if (arguments.has("config")) {
    const std::string path = arguments.text("config");
    auto settings = read_json(path);
    if (!settings) return tl::unexpected<Error>(settings.error());
    HEXLM_TRY(arguments.add_settings(*settings, path, ErrorCode::usage));
  }
  if (arguments.toggle("quiet")) set_log_level(LogLevel::warning);
  return arguments;
}

Status Arguments::add_layer(Layer layer, ErrorCode kind) {
  for (const auto& [name, texts] : layer.values) {
    const Flag* flag = verb_->find_flag(name);
    std::string where = fmt::format("--{}", name);
    if (layer.origin == variable_prefix) {
      where = flag->environment;
    } else if (!layer.origin.empty()) {
      where = fmt::format("{}: {}", layer.origin, setting_key(name));
    }
    if (texts.size() > 1 && !flag->repeat) {
      return fail(kind, fmt::format("{} takes one value, got {}", where, texts.size()));
    }
    for (const std::string& text : texts) HEXLM_TRY(check_value(*flag, text, where, kind));
  }
  layers_.push_back(std::move(layer));
  return {};
}

Status Arguments::add_environment() {
  Layer layer{std::string(variable_prefix), {}};
  for (const Flag& flag : verb_->flags) {
    if (flag.environment.empty()) continue;
    const char* value = std::getenv(std::string(flag.environment).c_str());
    if (value == nullptr) continue;
    std::string text = flag.kind == FlagKind::toggle ? toggle_text(value) : value;
    layer.values[std::string(flag.name)] = {std::move(text)};
  }
  HEXLM_TRY(refuse_unknown_variables());
  return add_layer(std::move(layer), ErrorCode::usage);
}

Status Arguments::add_settings(const Json& settings, const std::string& origin, ErrorCode kind) {
  if (!settings.is_object()) {
    return fail(kind,
                fmt::format("{}: expected a JSON object of settings, got {}", origin, settings.type_name()));
  }
  Layer layer{origin, {}};
  for (const auto& [key, value] : settings.items()) {
    const std::string name = flag_name_of(canonical_key(key));
    const std::string plain_key = setting_key(name);
    const std::vector<std::string>& known = setting_keys();
    if (std::find(known.begin(), known.end(), plain_key) == known.end()) {
      return fail(kind, fmt::format("{}: unknown key \"{}\"", origin, key),
                  fmt::format("did you mean \"{}\"?", nearest(plain_key, known)));
    }
    const Flag* flag = verb_->find_flag(name);
    if (flag == nullptr || flag->environment.empty() || value.is_null()) continue;
    auto texts = texts_of(value, flag->kind);
    if (!texts) {
      return fail(kind, fmt::format("{}: {} must be {}, got {}", origin, key, json_kind(flag->kind),
                                    value.dump(-1, ' ', false, Json::error_handler_t::replace)));
    }
    layer.values[name] = *std::move(texts);
  }
  return add_layer(std::move(layer), kind);
}

Arguments Arguments::with(const FlagValues& values) const {
  Arguments changed = *this;
  changed.layers_.insert(changed.layers_.begin(), Layer{"", values});
  return changed;
}

std::string Arguments::positional(size_t index) const {
  return index < positionals_.size() ? positionals_[index] : std::string();
}

const std::vector<std::string>* Arguments::find(std::string_view flag) const {
  for (const Layer& layer : layers_) {
    const auto found = layer.values.find(flag);
    if (found != layer.values.end() && !found->second.empty()) return &found->second;
  }
  return nullptr;
}

bool Arguments::toggle(std::string_view flag) const { return text(flag) == "true"; }

std::string Arguments::text(std::string_view flag) const {
  if (const std::vector<std::string>* texts = find(flag)) return texts->back();
  const Flag* known = verb_->find_flag(flag);
  if (known == nullptr || known->fallback.starts_with('(')) return {};
  return std::string(known->fallback);
}

std::vector<std::string> Arguments::texts(std::string_view flag) const {
  const std::vector<std::string>* texts = find(flag);
  return texts == nullptr ? std::vector<std::string>() : *texts;
}

int64_t Arguments::integer(std::string_view flag) const {
  int64_t value = 0;
  return parse_integer(text(flag), value) ? value : 0;
}

double Arguments::number(std::string_view flag) const { return parse_number(text(flag)).value_or(0.0); }

std::vector<int64_t> Arguments::integers(std::string_view flag) const {
  std::vector<int64_t> values;
  const std::string list = text(flag);
  for (const std::string_view part : split(list, ',')) {
    int64_t value = 0;
    if (parse_integer(part, value)) values.push_back(value);
  }
  return values;
}

ThreadSetting read_threads(std::string_view text) {
  int64_t threads = 0;
  if (parse_integer(text, threads))
    return {threads == 0 ? available_threads() : static_cast<int>(threads), {}, {}};
  const ProcessorChoice choice = choose_processors("/sys", allowed_processors());
  return {static_cast<int>(choice.processors.size()),
          choice.pinned() ? choice.processors : std::vector<int>(), describe(choice)};
}

ThreadSetting Arguments::thread_setting() const { return read_threads(text("threads")); }

int Arguments::threads() const { return thread_setting().threads; }

}  // namespace hexlm::tool
