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

/// Makes SIGINT, SIGTERM and SIGHUP ask the program to stop: `interrupted()` is true from then on, so that
/// what is half-written is removed on the way out. A second one ends the process at once (130).
void install_interrupt_handler();
bool interrupted();
/// Waits until `descriptor` can be read, or is at its end. False when the program was interrupted, before or
/// meanwhile.
bool wait_for_input(int descriptor);
/// Forgets an interrupt that was dealt with: a stopped answer does not end the chat.
void clear_interrupt();

}  // namespace hexlm
