#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hexlm::tool {

enum class FlagKind { toggle, text, path, integer, number, integers, choice };

/// One flag of a verb. This table is the only place that knows flags: parsing, validation, `--help`,
/// environment variables and configuration keys come from it.
struct Flag {
  std::string_view name;  ///< without dashes: "top-k"; the configuration key is "top_k"
  char letter = 0;        ///< 'n' for -n
  FlagKind kind = FlagKind::text;
  std::string_view value;     ///< what help calls the value; for a choice the choices, "low|normal|high"
  std::string_view fallback;  ///< built-in default; in parentheses when it is only described
  std::string_view help;
  std::string_view environment;  ///< "HEXLM_TOP_K"; empty for flags that only the command line may set
  bool repeat = false;
  double least = -std::numeric_limits<double>::infinity();  ///< bounds of integers and numbers
  double greatest = std::numeric_limits<double>::infinity();
  // NOLINTNEXTLINE(readability-redundant-string-init): calls that leave it out warn without an initializer.
  std::string_view word = "";  ///< what may stand for an integer, "auto"
};

struct Positional {
  std::string_view name;  ///< "MODEL"
  std::string_view help;
  bool required = true;
};

struct Example {
  std::string_view command;
  std::string_view what;
};

class Arguments;

struct Verb {
  std::string_view name;
  std::string_view summary;
  std::vector<Positional> positionals;
  std::vector<Flag> flags;
  std::vector<Example> examples;

  const Flag* find_flag(std::string_view flag_name) const;
};

/// Every verb, in the order of help.
const std::vector<Verb>& verbs();
const Verb* find_verb(std::string_view name);
/// "top_k" for "top-k"
std::string setting_key(std::string_view flag_name);
/// Keys that a configuration file may hold: the settings of all verbs, as one file serves several.
const std::vector<std::string>& setting_keys();

}  // namespace hexlm::tool
