#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace hexlm {

/// Receives how far a long job has come: `done` of `total` units (bytes, tensors, tokens: the caller's
/// choice). Called from one thread. Returning false asks the job to stop; it then fails with
/// ErrorCode::interrupted.
using ProgressCallback = std::function<bool(const std::string& what, uint64_t done, uint64_t total)>;

/// A callback that draws a bar when stderr is a terminal and else prints a line per 10 %.
ProgressCallback terminal_progress(std::string title);

/// True once after SIGINT when `install_interrupt_handler` was called; a second SIGINT ends the process
/// (130).
void install_interrupt_handler();
bool interrupted();
/// Forgets an interrupt that was dealt with: a stopped answer does not end the chat.
void clear_interrupt();

}  // namespace hexlm
