#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "hexlm/arguments.hpp"
#include "hexlm/flags.hpp"

namespace hexlm::tool {

struct CommandLine {
  FlagValues flags;
  std::vector<std::string> positionals;
  bool help = false;
};

/// Parses what follows the verb. `--flag value`, `--flag=value`, `-n 4`, `-n4`; `_` may stand for `-` in long
/// flags; `--` ends the flags; of a flag that is not repeatable the last counts.
/// Errors: usage for unknown flags (with the nearest), missing values and positionals, and superfluous ones.
Result<CommandLine> parse_command_line(const Verb& verb, std::vector<std::string> arguments);

/// The text of `hexlm --help` and `hexlm VERB --help`.
std::string help_text();
std::string help_text(const Verb& verb);

}  // namespace hexlm::tool
