#include "hexlm/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>

#include "base/text.hpp"

namespace hexlm::tool {
namespace {

std::string help_hint(const Verb& verb) {
  return fmt::format("`hexlm {} --help` lists the flags", verb.name);
}

/// `--max_new_tokens=4` is `--max-new-tokens=4`, unless the verb has no such flag.
std::string with_dashes(const Verb& verb, const std::string& argument) {
  if (!argument.starts_with("--") || argument.size() == 2) return argument;
  const size_t end = std::min(argument.find('='), argument.size());
  std::string name = argument.substr(2, end - 2);
  std::replace(name.begin(), name.end(), '_', '-');
  if (name != "help" && verb.find_flag(name) == nullptr) return argument;
  return fmt::format("--{}{}", name, argument.substr(end));
}

std::string unknown_flag_hint(const Verb& verb, const std::string& argument) {
  std::vector<std::string> known = {"--help"};
  for (const Flag& flag : verb.flags) known.push_back(fmt::format("--{}", flag.name));
  if (!argument.starts_with("--")) {
    return fmt::format("a text that begins with - goes behind a --; {}", help_hint(verb));
  }
  return fmt::format("did you mean {}? {}", nearest(argument.substr(0, argument.find('=')), known),
                     help_hint(verb));
}

/// What CLI11 has no flag for: positionals, or an unknown flag, which is an error.
Status take_positionals(const Verb& verb, const std::vector<std::string>& rest,
                        std::vector<std::string>& positionals) {
  for (const std::string& argument : rest) {
    if (argument.size() > 1 && argument.starts_with('-')) {
      return fail(ErrorCode::usage,
                  fmt::format("unknown flag {} of {}", argument.substr(0, argument.find('=')), verb.name),
                  unknown_flag_hint(verb, argument));
    }
    positionals.push_back(argument);
  }
  return {};
}

Status check_positionals(const Verb& verb, const std::vector<std::string>& given) {
  if (given.size() > verb.positionals.size()) {
    return fail(ErrorCode::usage,
                fmt::format("unexpected argument \"{}\" of {}", given[verb.positionals.size()], verb.name),
                fmt::format("quote a text with spaces; {}", help_hint(verb)));
  }
  for (size_t i = given.size(); i < verb.positionals.size(); ++i) {
    if (!verb.positionals[i].required) continue;
    return fail(ErrorCode::usage,
                fmt::format("{} needs {}: {}", verb.name, verb.positionals[i].name, verb.positionals[i].help),
                help_hint(verb));
  }
  return {};
}

struct Binding {
  const Flag* flag;
  CLI::Option* option;
};

std::vector<Binding> add_flags(CLI::App& app, const Verb& verb) {
  std::vector<Binding> bindings;
  for (const Flag& flag : verb.flags) {
    std::string names = fmt::format("--{}", flag.name);
    if (flag.letter != 0) names += fmt::format(",-{}", flag.letter);
    CLI::Option* option = flag.kind == FlagKind::toggle ? app.add_flag(names) : app.add_option(names);
    // CLI11's own checks and exit codes are not used: every value is kept as text and checked with the table.
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (flag.kind != FlagKind::toggle) option->expected(1)->allow_extra_args(false);
    bindings.push_back({&flag, option});
  }
  return bindings;
}

void collect(const std::vector<Binding>& bindings, FlagValues& values) {
  for (const auto& [flag, option] : bindings) {
    std::vector<std::string> results = option->results();
    if (results.empty()) continue;
    if (!flag->repeat) results.erase(results.begin(), results.end() - 1);
    values[std::string(flag->name)] = std::move(results);
  }
}

}  // namespace

Result<CommandLine> parse_command_line(const Verb& verb, std::vector<std::string> arguments) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  std::vector<std::string> words;
  for (auto argument = arguments.begin(); argument != end; ++argument) {
    std::string word = with_dashes(verb, *argument);
    // CLI11 takes "--flag=" for a flag without value.
    const bool empty_value = word.starts_with("--") && word.size() > 3 && word.find('=') == word.size() - 1;
    if (empty_value) word.pop_back();
    words.push_back(std::move(word));
    if (empty_value) words.emplace_back();
  }
  CommandLine line;
  try {
    CLI::App app;
    app.set_help_flag("");
    app.allow_extras();
    const std::vector<Binding> bindings = add_flags(app, verb);
    const CLI::Option* help = app.add_flag("--help,-h");
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(std::move(words));
    line.help = help->count() > 0;
    if (line.help) {
      // "-hello" is no -h.
      const auto fused = std::find_if(arguments.begin(), end, [](const std::string& word) {
        return word.size() > 2 && word.starts_with("-h");
      });
      if (fused == end) return line;
      return fail(ErrorCode::usage, fmt::format("unknown flag {} of {}", *fused, verb.name),
                  unknown_flag_hint(verb, *fused));
    }
    HEXLM_TRY(take_positionals(verb, app.remaining(), line.positionals));
    collect(bindings, line.flags);
  } catch (const CLI::Error& error) {
    // Whatever code CLI11 would exit with, a command line that can't be parsed is a usage error.
    return fail(ErrorCode::usage, error.what(), help_hint(verb));
  }
  if (end != arguments.end()) line.positionals.insert(line.positionals.end(), end + 1, arguments.end());
  HEXLM_TRY(check_positionals(verb, line.positionals));
  return line;
}

}  // namespace hexlm::tool
