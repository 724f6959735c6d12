#pragma once

#include <string>

#include "base/file_descriptor.hpp"

namespace hexlm {

/// Marks a file or folder that this process is writing as in use, for as long as the descriptor lives (an
/// advisory lock, which the system also drops when the process is killed). Best effort: an invalid
/// descriptor where the file system has no locks.
FileDescriptor mark_in_use(const std::string& path);

/// Removes what killed processes left beside `target`: `target`.tmp-PID and, where `target` itself exists,
/// `target`.old-PID (the former content that was being deleted). Only plain files or folders whose process is
/// gone and that nobody has marked; symbolic links and everything else stay.
void remove_stale_siblings(const std::string& target);

}  // namespace hexlm
