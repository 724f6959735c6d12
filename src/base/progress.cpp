#include "base/progress.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <poll.h>
#include <string>
#include <unistd.h>

#include "base/log.hpp"

namespace hexlm {
namespace {

constexpr int interrupted_exit_code = 130;  // 128 + SIGINT, as shells report it
constexpr int bar_width = 30;

volatile std::sig_atomic_t interrupt_count = 0;
/// A pipe that holds a byte while the program is interrupted: what waits for input waits for it as well,
/// which a flag alone could not wake, whichever thread the signal comes to.
std::array<int, 2> wake_pipe = {-1, -1};

void on_interrupt(int) {
  if (interrupt_count != 0) ::_exit(interrupted_exit_code);
  interrupt_count = 1;
  const int before = errno;
  [[maybe_unused]] const ssize_t written = ::write(wake_pipe[1], "", 1);
  errno = before;
}

/// What was last shown, so that a callback per tensor does not redraw an unchanged bar.
struct Shown {
  int percent = -1;
  bool finished = false;
};

void draw_bar(const std::string& title, const std::string& what, int percent, Shown& shown) {
  if (percent == shown.percent) return;
  const std::string filled(static_cast<size_t>(percent * bar_width / 100), '#');
  // "\033[K" clears the rest of the line, where a longer name may have stood.
  const std::string line = fmt::format("\r{} [{:-<{}}] {:3}% {:.40}\033[K{}", title, filled, bar_width,
                                       percent, what, percent == 100 ? "\n" : "");
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

void print_tenth(const std::string& title, int percent, const Shown& shown) {
  if (percent / 10 == shown.percent / 10 && shown.percent >= 0) return;
  const std::string line = fmt::format("{}: {}%\n", title, percent / 10 * 10);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

ProgressCallback terminal_progress(std::string title) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  auto shown = std::make_shared<Shown>();
  return [title = std::move(title), terminal, shown](const std::string& what, uint64_t done, uint64_t total) {
    const double share =
        total == 0 ? 1.0 : static_cast<double>(std::min(done, total)) / static_cast<double>(total);
    const int percent = static_cast<int>(share * 100);
    if (!shown->finished && log_level() >= LogLevel::info) {
      if (terminal) {
        draw_bar(title, what, percent, *shown);
      } else {
        print_tenth(title, percent, *shown);
      }
    }
    shown->percent = percent;
    shown->finished = percent == 100;
    return !interrupted();
  };
}

void install_interrupt_handler() {
  if (wake_pipe[0] < 0 && ::pipe2(wake_pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) wake_pipe = {-1, -1};
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    sigaction(signal, nullptr, &before);
    // `nohup` stays what it is; that a script's background job ignores SIGINT does not.
    if (signal != SIGHUP || before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

bool interrupted() { return interrupt_count != 0; }

bool wait_for_input(int descriptor) {
  std::array<pollfd, 2> polled = {pollfd{descriptor, POLLIN, 0}, pollfd{wake_pipe[0], POLLIN, 0}};
  while (!interrupted()) {
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return !interrupted();
    if (polled[0].revents != 0 && !interrupted()) return true;
  }
  return false;
}

void clear_interrupt() {
  std::array<char, 16> bytes{};
  while (::read(wake_pipe[0], bytes.data(), bytes.size()) > 0) {
  }
  interrupt_count = 0;
}

}  // namespace hexlm
