#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.hpp"
#include "base/progress.hpp"
#include "base/text.hpp"
#include "hexlm/command_line.hpp"
#include "hexlm/report.hpp"
#include "hexlm/verbs.hpp"

namespace hexlm::tool {
namespace {

/// 128 + SIGPIPE, what a shell reports for a program whose reader went away.
constexpr int broken_pipe_exit_code = 141;

struct Handler {
  std::string_view verb;
  Result<int> (*run)(Arguments&);
};
constexpr Handler handlers[] = {{"export", run_export},         {"run", run_run},
                                {"logits", run_logits},         {"tokenize", run_tokenize},
                                {"perplexity", run_perplexity}, {"inspect", run_inspect},
                                {"merge", run_merge},           {"synth", run_synth},
                                {"bench", run_bench},           {"version", run_version}};

/// Whether errors are to be JSON, known even when the rest of the command line can't be parsed.
bool wants_json(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--format=json") return true;
    if (words[i] == "--format") return i + 1 < words.size() && words[i + 1] == "json";
  }
  const char* variable = std::getenv("HEXLM_FORMAT");
  return variable != nullptr && std::string_view(variable) == "json";
}

tl::unexpected<Error> unknown_verb(const std::string& word) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) names.emplace_back(verb.name);
  return fail(ErrorCode::usage, fmt::format("unknown verb \"{}\"", word),
              fmt::format("did you mean {}? `hexlm --help` lists the verbs", nearest(word, names)));
}

Result<int> run_tool(const std::vector<std::string>& words) {
  if (words.empty()) return fail(ErrorCode::usage, "no verb given", "`hexlm --help` lists the verbs");
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print(help_text());
    return 0;
  }
  const std::string& name = words[0] == "--version" ? "version" : words[0];
  const Verb* verb = find_verb(name);
  if (verb == nullptr) return unknown_verb(name);
  HEXLM_ASSIGN(CommandLine line, parse_command_line(*verb, {words.begin() + 1, words.end()}));
  if (line.help) {
    print(help_text(*verb));
    return 0;
  }
  HEXLM_ASSIGN(Arguments arguments,
               Arguments::create(*verb, std::move(line.flags), std::move(line.positionals)));
  std::vector<std::string> command = {"hexlm"};
  command.insert(command.end(), words.begin(), words.end());
  arguments.set_command(std::move(command));
  for (const Handler& handler : handlers) {
    if (handler.verb == verb->name) return handler.run(arguments);
  }
  return unknown_verb(name);
}

/// A result that did not reach its reader is no success.
int check_stdout(int code, bool json) {
  errno = 0;
  if (stdout_works()) return code;
  const int reason = errno;
  if (reason == EPIPE || reason == 0) return broken_pipe_exit_code;
  const Error error{write_error_code(reason), fmt::format("can't write to stdout: {}", system_reason(reason)),
                    ""};
  print_error(error, json);
  return static_cast<int>(error.code);
}

int run_main(const std::vector<std::string>& words) {
  const bool json = wants_json(words);
  const Result<int> result = run_tool(words);
  if (result) return check_stdout(*result, json);
  print_error(result.error(), json);
  std::fflush(stdout);
  return static_cast<int>(result.error().code);
}

}  // namespace
}  // namespace hexlm::tool

int main(int count, char** words) {
  // Writes to a closed pipe, or beyond a limit on file sizes, then fail, and an export can still remove what
  // it has half written.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  hexlm::install_interrupt_handler();
  return hexlm::tool::run_main({words + 1, words + count});
}
