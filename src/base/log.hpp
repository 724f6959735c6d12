#pragma once

#include <string_view>

namespace hexlm {

/// Diagnostics to stderr. stdout is for results alone and nothing in the library writes there.
enum class LogLevel { quiet, warning, info, debug };
void set_log_level(LogLevel level);
LogLevel log_level();
void log_warning(std::string_view text);
void log_info(std::string_view text);
void log_debug(std::string_view text);

}  // namespace hexlm
