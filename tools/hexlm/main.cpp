#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
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
                                {"bench", run_bench},           {"eval", run_eval},
                                {"compare", run_compare},       {"bisect", run_bisect},
                                {"version", run_version}};

/// How errors are printed, known even when the rest of the command line can't be parsed.
ErrorStyle error_style(const std::vector<std::string>& words) {
  std::string_view format;
  if (const char* variable = std::getenv("HEXLM_FORMAT")) format = variable;
  constexpr std::string_view flag = "--format";
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == flag) format = i + 1 < words.size() ? std::string_view(words[i + 1]) : std::string_view();
    if (word.starts_with(flag) && word.substr(flag.size()).starts_with('='))
      format = word.substr(flag.size() + 1);
  }
  if (format == "json") return ErrorStyle::json;
  return format == "jsonl" ? ErrorStyle::jsonl : ErrorStyle::text;
}

tl::unexpected<Error> unknown_verb(const std::string& word) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) names.emplace_back(verb.name);
  const std::string meant = likely_meant(word, names);
  return fail(ErrorCode::usage, fmt::format("there is no verb \"{}\"", word),
              fmt::format("{}`hexlm --help` lists the verbs",
                          meant.empty() ? "" : fmt::format("did you mean {}? ", meant)));
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
int check_stdout(int code, ErrorStyle style) {
  if (stdout_works()) return code;
  const int reason = stdout_failure();
  if (reason == EPIPE) return broken_pipe_exit_code;
  const ErrorCode kind = write_error_code(reason);
  const Error error{kind, fmt::format("stdout: write failed: {}", system_reason(reason)),
                    kind == ErrorCode::limit ? "free disk space or write to another disk" : ""};
  print_error(error, style);
  return static_cast<int>(error.code);
}

/// The library reports errors as values, but memory can run out in any allocation and a thread may not start.
/// On the way here destructors remove what was half written.
Result<int> run_guarded(const std::vector<std::string>& words) {
  constexpr const char* hint = "free memory, or use a smaller --context or fewer --threads";
  try {
    return run_tool(words);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::limit, "memory ran out", hint);
  } catch (const std::system_error& error) {
    return fail(ErrorCode::limit, fmt::format("the system refused a thread: {}", error.what()), hint);
  }
}

/// Where memory runs out in a worker, or where nothing may be thrown, there is no way back to run_guarded.
/// What is left behind then, the next export removes.
[[noreturn]] void on_terminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    constexpr std::string_view text =
        "error: memory ran out\nhint: free memory, or use a smaller --context\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    ::_exit(static_cast<int>(ErrorCode::limit));
  } catch (...) {
    std::abort();
  }
  std::abort();
}

int run_main(const std::vector<std::string>& words) {
  const ErrorStyle style = error_style(words);
  std::set_terminate(on_terminate);
  const Result<int> result = run_guarded(words);
  if (result) return check_stdout(*result, style);
  Error error = result.error();
  if (error.hint.empty() && error.code == ErrorCode::usage && !words.empty() &&
      find_verb(words[0]) != nullptr) {
    error.hint = fmt::format("`hexlm {} --help` lists the flags and shows examples", words[0]);
  }
  print_error(error, style);
  std::fflush(stdout);
  return static_cast<int>(error.code);
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
