#include <algorithm>
#include <fmt/format.h>

#include "base/text.hpp"
#include "hexlm/command_line.hpp"

namespace hexlm::tool {
namespace {

/// Columns of a help text; terminals are rarely narrower.
constexpr size_t width = 100;
constexpr size_t indent = 30;

/// `text` broken at spaces, every line after the first indented.
std::string wrapped(std::string_view text) {
  std::string result;
  size_t column = indent;
  for (const std::string_view word : split(text, ' ')) {
    if (column + word.size() > width && column > indent) {
      result += fmt::format("\n{:{}}", "", indent);
      column = indent;
    } else if (column > indent) {
      result += ' ';
    }
    result += word;
    column += word.size() + 1;
  }
  return result;
}

std::string entry(const std::string& left, const std::string& right) {
  // A left part that reaches into the right column gets a line of its own.
  if (left.size() + 4 > indent) return fmt::format("  {}\n{:{}}{}\n", left, "", indent, wrapped(right));
  return fmt::format("  {:<{}}{}\n", left, indent - 2, wrapped(right));
}

std::string flag_entry(const Flag& flag) {
  std::string left = flag.letter != 0 ? fmt::format("-{}, ", flag.letter) : "    ";
  left += fmt::format("--{}", flag.name);
  if (!flag.value.empty()) left += fmt::format(" {}", flag.value);
  std::string right(flag.help);
  std::string origin;
  if (!flag.fallback.empty()) {
    const bool described = flag.fallback.starts_with('(');
    origin = fmt::format("default: {}",
                         described ? flag.fallback.substr(1, flag.fallback.size() - 2) : flag.fallback);
  }
  if (!flag.environment.empty()) origin += fmt::format("{}{}", origin.empty() ? "" : "; ", flag.environment);
  if (!origin.empty()) right += fmt::format(" [{}]", origin);
  return entry(left, right);
}

constexpr std::string_view exit_codes =
    "Exit codes: 0 ok, 1 run-time failure, 2 usage, 3 bad model or input file, 4 unsupported,\n"
    "            5 out of memory, disk or a limit, 6 device not found, 7 verification failed, 130 "
    "interrupted\n";

}  // namespace

std::string help_text() {
  std::string text =
      "hexlm: quantize, check and run language models\n\nUsage: hexlm VERB [ARGUMENTS]\n\nVerbs:\n";
  for (const Verb& verb : verbs()) text += entry(std::string(verb.name), std::string(verb.summary));
  text += "\n`hexlm VERB --help` explains a verb and shows examples.\n";
  text +=
      "Settings: flag, then HEXLM_* variable, --config FILE, the package's config.json, its\n"
      "generation_config.json, built-in default.\n";
  text += exit_codes;
  return text;
}

std::string help_text(const Verb& verb) {
  std::string text = fmt::format("{}\n\nUsage: hexlm {}", verb.summary, verb.name);
  for (const Positional& positional : verb.positionals) {
    text += positional.required ? fmt::format(" {}", positional.name) : fmt::format(" [{}]", positional.name);
  }
  text += " [FLAGS]\n\n";
  for (const Positional& positional : verb.positionals) {
    text += entry(std::string(positional.name), std::string(positional.help));
  }
  if (!verb.positionals.empty()) text += "\n";
  text += "Flags:\n";
  for (const Flag& flag : verb.flags) text += flag_entry(flag);
  text += entry("-h, --help", "this text");
  text += "\nExamples:\n";
  for (const Example& example : verb.examples)
    text += fmt::format("  # {}\n  {}\n", example.what, example.command);
  text += "\n";
  text += exit_codes;
  return text;
}

}  // namespace hexlm::tool
