#include "base/log.hpp"

#include <atomic>
#include <cstdio>
#include <fmt/format.h>

namespace hexlm {
namespace {

std::atomic<LogLevel> current_level{LogLevel::info};

void write_line(LogLevel level, std::string_view prefix, std::string_view text) {
  if (log_level() < level) return;
  const std::string line = fmt::format("{}{}\n", prefix, text);
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call, so that lines of several threads do not mix
}

}  // namespace

void set_log_level(LogLevel level) { current_level.store(level, std::memory_order_relaxed); }

LogLevel log_level() { return current_level.load(std::memory_order_relaxed); }

void log_warning(std::string_view text) { write_line(LogLevel::warning, "warning: ", text); }

void log_info(std::string_view text) { write_line(LogLevel::info, "", text); }

void log_debug(std::string_view text) { write_line(LogLevel::debug, "debug: ", text); }

}  // namespace hexlm
