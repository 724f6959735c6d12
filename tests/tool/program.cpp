#include "tool/program.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <pty.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace hexlm {
namespace {

/// A test of this program ends in seconds; a loaded machine may need longer.
constexpr int patience_ms = 120000;

std::vector<std::string> clean_environment(const std::vector<std::string>& more) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "HEXLM_", 6) != 0) variables.emplace_back(*entry);
  }
  variables.insert(variables.end(), more.begin(), more.end());
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

int exit_code(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  Pipe() {
    std::array<int, 2> ends{};
    // Close-on-exec, so that no other test's child holds them open.
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) ADD_FAILURE() << "no pipe";
    read_end = ends[0];
    write_end = ends[1];
  }
};

pid_t spawn(std::vector<std::string> arguments, std::vector<std::string> environment, const Pipe& in,
            const Pipe& out, const Pipe& err, const ProgramOptions& options) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read_end, STDIN_FILENO);
  if (options.stdout_file.empty()) {
    posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, options.stdout_file.c_str(), O_WRONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, err.write_end, STDERR_FILENO);
  arguments.insert(arguments.begin(), HEXLM_PROGRAM);
  std::string program = HEXLM_PROGRAM;
  if (options.address_space_limit >
      0) {  // through a shell: this process could not start anything under the limit
    program = "/bin/sh";
    arguments.insert(arguments.begin(), {"sh", "-c",
                                         "ulimit -v " + std::to_string(options.address_space_limit / 1024) +
                                             " && exec \"$0\" \"$@\""});
  }
  pid_t child = -1;
  if (::posix_spawn(&child, program.c_str(), &actions, nullptr, pointers(arguments).data(),
                    pointers(environment).data()) != 0) {
    ADD_FAILURE() << "can't start " << HEXLM_PROGRAM;
  }
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

/// Until every look at the process within a tenth of a second finds it waiting.
void wait_until_asleep(pid_t child) {
  const std::string path = "/proc/" + std::to_string(child) + "/stat";
  for (int quiet = 0, looks = 0; quiet < 20 && looks < patience_ms / 5; ++looks) {
    std::ifstream stat(path);
    std::string text;
    std::getline(stat, text);
    const size_t state = text.rfind(") ");
    quiet = state != std::string::npos && text[state + 2] == 'S' ? quiet + 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Limits a resource while it lives; a child started then keeps the limit. 0 for no limit.
class ResourceLimit {
 public:
  ResourceLimit(__rlimit_resource resource, size_t bytes) : resource_(resource) {
    ::getrlimit(resource_, &before_);
    rlimit limit = before_;
    if (bytes > 0) limit.rlim_cur = bytes;
    ::setrlimit(resource_, &limit);
  }
  ResourceLimit(const ResourceLimit&) = delete;
  ResourceLimit& operator=(const ResourceLimit&) = delete;
  ~ResourceLimit() { ::setrlimit(resource_, &before_); }

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

/// Appends what is there; false at the end.
bool read_some(int descriptor, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<size_t>(count));
  return count > 0;
}

void collect(pid_t child, int out, int err, const ProgramOptions& options, ProgramResult& result) {
  std::array<pollfd, 2> polled = {pollfd{out, POLLIN, 0}, pollfd{err, POLLIN, 0}};
  bool interrupted = false;
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    if (::poll(polled.data(), polled.size(), patience_ms) <= 0) {
      ADD_FAILURE() << "no output for too long";
      ::kill(child, SIGKILL);
      return;
    }
    if (polled[0].revents != 0 && !read_some(out, result.out)) polled[0].fd = -1;
    if (polled[1].revents != 0 && !read_some(err, result.err)) polled[1].fd = -1;
    if (!interrupted && options.interrupt_after > 0 && result.out.size() >= options.interrupt_after) {
      ::kill(child, SIGINT);
      interrupted = true;
    }
  }
}

}  // namespace

Json ProgramResult::json() const {
  auto parsed = parse_json(out, "stdout");
  EXPECT_TRUE(parsed) << "stdout: " << out << "\nstderr: " << err;
  return parsed ? *std::move(parsed) : Json::object();
}

std::string ProgramResult::last_error_line() const {
  const size_t end = err.find_last_not_of('\n');
  if (end == std::string::npos) return {};
  const size_t begin = err.rfind('\n', end);
  return err.substr(begin + 1, end - begin);
}

ProgramResult run_hexlm(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);
  const Pipe in;
  const Pipe out;
  const Pipe err;
  // Before the program starts: it may have written everything before this thread runs again.
  if (options.close_stdout) ::close(out.read_end);
  const pid_t child = [&] {
    const ResourceLimit file_size(RLIMIT_FSIZE, options.file_size_limit);
    return spawn(arguments, clean_environment(options.environment), in, out, err, options);
  }();
  ::close(in.read_end);
  ::close(out.write_end);
  ::close(err.write_end);
  std::thread writer([&] {
    if (options.signal_when_waiting != 0) {
      wait_until_asleep(child);
      ::kill(child, options.signal_when_waiting);
      return;
    }
    size_t sent = 0;
    while (sent < options.input.size()) {
      const ssize_t count = ::write(in.write_end, options.input.data() + sent, options.input.size() - sent);
      if (count <= 0) break;
      sent += static_cast<size_t>(count);
    }
    ::close(in.write_end);
  });
  ProgramResult result;
  const int out_end = options.close_stdout ? -1 : out.read_end;
  collect(child, out_end, err.read_end, options, result);
  writer.join();
  if (options.signal_when_waiting != 0) ::close(in.write_end);
  if (!options.close_stdout) ::close(out.read_end);
  ::close(err.read_end);
  result.code = exit_code(child);
  return result;
}

ProgramResult type_to_hexlm(const std::vector<std::string>& arguments, const std::vector<TypedKeys>& steps) {
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), HEXLM_PROGRAM);
  std::vector<std::string> environment = clean_environment({});
  ProgramResult result;
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::execve(HEXLM_PROGRAM, pointers(words).data(), pointers(environment).data());
    ::_exit(127);
  }
  size_t step = 0;
  size_t searched = 0;
  pollfd polled{terminal, POLLIN, 0};
  while (true) {
    if (step < steps.size()) {
      const size_t found = result.out.find(steps[step].wait_for, searched);
      if (found != std::string::npos) {
        searched = found + steps[step].wait_for.size();
        if (::write(terminal, steps[step].keys.data(), steps[step].keys.size()) < 0)
          ADD_FAILURE() << "can't type";
        ++step;
        continue;
      }
    }
    if (::poll(&polled, 1, patience_ms) <= 0) {
      ADD_FAILURE() << "the terminal shows nothing more after: " << result.out;
      ::kill(child, SIGKILL);
      break;
    }
    if (!read_some(terminal, result.out)) break;  // the program has ended
  }
  EXPECT_EQ(step, steps.size()) << "waited for \"" << steps[std::min(step, steps.size() - 1)].wait_for
                                << "\" in: " << result.out;
  ::close(terminal);
  result.code = exit_code(child);
  return result;
}

}  // namespace hexlm
